//! Arrow Flight SQL for statements about jobs: LanceDB's `execute_query("SHOW JOBS")`, and any client of
//! the protocol.
//!
//! A ticket is the command it was given for, and the handle of a prepared statement is its text: nothing is
//! kept between two requests. A change is made when its answer is fetched.

mod call;
mod gate;
mod run;

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::server::FlightSqlService;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, CommandGetSqlInfo, CommandPreparedStatementQuery, CommandStatementQuery, SqlInfo,
};
use arrow_flight::{Action, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use axum::Router;
use axum::http::StatusCode;
use futures::{Stream, StreamExt, TryStreamExt};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use self::call::Calls;
use self::gate::{Caller, admit};
use super::api::Refused;
use super::door::write_down;
use super::keys::Keys;
use crate::error::Result;
use crate::registry::Registry;
use crate::sql::{self, Statement, rows};

/// Bytes of a request: a statement is a line.
const REQUEST_MAX: usize = 64 << 10;
/// Characters of a refusal: it travels in a header, which clients take up to 8 KiB of.
const WHY_MAX: usize = 1_000;

type Rows = <Jobs as FlightService>::DoGetStream;

/// The service, with its gate.
pub(super) fn routes(keys: Keys, registry: Registry) -> Router {
    let service = FlightServiceServer::new(Calls(Jobs { registry })).max_decoding_message_size(REQUEST_MAX);
    Routes::new(service).into_axum_router().layer(axum::middleware::from_fn_with_state(keys, admit))
}

/// What answers commands.
struct Jobs {
    registry: Registry,
}

impl Jobs {
    /// How to get the answer of a statement; one that its caller may not ask for is refused already here.
    fn info<T>(text: &str, request: &Request<T>, command: FlightDescriptor) -> Result<Response<FlightInfo>, Status> {
        let statement = asked(text, request)?.1;
        info(&rows::schema(&statement), command)
    }

    async fn answer<T>(&self, text: &str, request: &Request<T>) -> Result<Response<Rows>, Status> {
        let (caller, statement) = asked(text, request)?;
        let found = run::run(&self.registry, &statement).await;
        if statement.changes() {
            let status = found.as_ref().map_or_else(|refused| refused.status, |_| StatusCode::OK);
            noted(&caller, text, status);
        }
        let found = found.map_err(refused)?;
        Ok(stream(&rows::schema(&statement), found.map_err(refused)))
    }
}

/// Who asks for what.
fn asked<T>(text: &str, request: &Request<T>) -> Result<(Caller, Statement), Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    let caller = caller.ok_or_else(|| Status::internal("nobody asked who this is"))?;
    let statement = sql::parse(text).map_err(|error| refused(error.into()))?;
    if let Err(why) = caller.may(&statement) {
        noted(&caller, text, StatusCode::FORBIDDEN);
        return Err(why);
    }
    Ok((caller, statement))
}

/// Writes down who asked for a change: one line in the log, whatever is in the statement.
fn noted(caller: &Caller, text: &str, status: StatusCode) {
    write_down(&caller.name, "SQL", &text.trim().replace(char::is_control, " "), &caller.request, status);
}

fn info(schema: &Schema, command: FlightDescriptor) -> Result<Response<FlightInfo>, Status> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(command.cmd.clone()));
    let info = FlightInfo::new().try_with_schema(schema).map_err(|e| refused(e.into()))?;
    Ok(Response::new(info.with_endpoint(endpoint).with_descriptor(command)))
}

fn stream(schema: &Schema, rows: impl Stream<Item = Result<RecordBatch, Status>> + Send + 'static) -> Response<Rows> {
    let rows = rows.map_err(|status| FlightError::Tonic(Box::new(status)));
    let sent = FlightDataEncoderBuilder::new().with_schema(schema.clone().into()).build(rows);
    Response::new(sent.map_err(Status::from).boxed())
}

/// The statement of a prepared one's handle.
fn prepared(handle: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(handle).map_err(|_| Status::invalid_argument("this is no handle of a prepared statement"))
}

fn server() -> Result<SqlInfoData, Status> {
    let mut about = SqlInfoDataBuilder::new();
    about.append(SqlInfo::FlightSqlServerName, "Caretaker");
    about.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    about.append(SqlInfo::FlightSqlServerReadOnly, false);
    about.append(SqlInfo::FlightSqlServerSql, true);
    about.append(SqlInfo::FlightSqlServerSubstrait, false);
    Ok(about.build()?)
}

/// A refusal as this protocol says it.
fn refused(refused: Refused) -> Status {
    let code = match refused.status {
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::CONFLICT => Code::Aborted,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::Internal,
    };
    let mut why = refused.why;
    if let Some((end, _)) = why.char_indices().nth(WHY_MAX) {
        why.truncate(end);
        why.push('…');
    }
    Status::new(code, why)
}

#[tonic::async_trait]
impl FlightSqlService for Jobs {
    type FlightService = Self;

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::info(&query.query, &request, request.get_ref().clone())
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::info(prepared(&query.prepared_statement_handle)?, &request, request.get_ref().clone())
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query.into_builder(&server()?).schema(), request.into_inner())
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<Rows>, Status> {
        self.answer(prepared(&query.prepared_statement_handle)?, &request).await
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        _request: Request<Ticket>,
    ) -> Result<Response<Rows>, Status> {
        let about = server()?;
        let query = query.into_builder(&about);
        let (schema, rows) = (query.schema(), query.build());
        Ok(stream(&schema, futures::stream::once(async { rows.map_err(Status::from) })))
    }

    /// A statement's ticket. The newest client sends the command in a field of its own, without having asked
    /// for a ticket.
    async fn do_get_fallback(&self, request: Request<Ticket>, message: Any) -> Result<Response<Rows>, Status> {
        if let Some(query) = message.unpack::<CommandStatementQuery>().map_err(|e| refused(e.into()))? {
            return self.answer(&query.query, &request).await;
        }
        if !message.type_url.is_empty() {
            return Err(Status::unimplemented(message.type_url));
        }
        let (metadata, extensions, _) = request.into_parts();
        let command = FlightDescriptor::new_cmd(message.value);
        let command = Request::from_parts(metadata.clone(), extensions.clone(), command);
        // Only what is a command itself gets a ticket, so this comes back here once at most.
        let info = self.get_flight_info(command).await?.into_inner();
        let ticket = info.endpoint.into_iter().find_map(|endpoint| endpoint.ticket).unwrap_or_default();
        self.do_get(Request::from_parts(metadata, extensions, ticket)).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let statement = asked(&query.query, &request)?.1;
        let of = |schema: &Schema| -> Result<_, Status> {
            let written = IpcMessage::try_from(SchemaAsIpc::new(schema, &IpcWriteOptions::default()));
            Ok(written.map_err(|e| refused(e.into()))?.0)
        };
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: query.query.into(),
            dataset_schema: of(&rows::schema(&statement))?,
            parameter_schema: of(&Schema::empty())?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _query: ActionClosePreparedStatementRequest,
        _request: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
