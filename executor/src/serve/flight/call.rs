//! The calls of Flight, beneath Flight SQL: those that its library leaves out, and what is not answered.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo, SchemaResult, Ticket,
};
use tonic::{Code, Request, Response, Status, Streaming};

use super::Jobs;

const NOT_HERE: &str = "this is not answered here: only statements about jobs are, as queries, plain or prepared, \
                        such as SHOW JOBS; a key is sent as `x-api-key` or as `authorization: Bearer`";

pub(super) struct Calls(pub(super) Jobs);

/// What the library does not implement, in words that help.
fn clear(status: Status) -> Status {
    if status.code() == Code::Unimplemented { Status::unimplemented(NOT_HERE) } else { status }
}

#[tonic::async_trait]
impl FlightService for Calls {
    type HandshakeStream = <Jobs as FlightService>::HandshakeStream;
    type ListFlightsStream = <Jobs as FlightService>::ListFlightsStream;
    type DoGetStream = <Jobs as FlightService>::DoGetStream;
    type DoPutStream = <Jobs as FlightService>::DoPutStream;
    type DoActionStream = <Jobs as FlightService>::DoActionStream;
    type ListActionsStream = <Jobs as FlightService>::ListActionsStream;
    type DoExchangeStream = <Jobs as FlightService>::DoExchangeStream;

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        self.0.get_flight_info(request).await.map_err(clear)
    }

    /// How LanceDB's clients submit a query: every one is complete at once.
    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let info = self.get_flight_info(request).await?.into_inner();
        Ok(Response::new(PollInfo { info: Some(info), progress: Some(1.0), ..PollInfo::default() }))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let info = self.get_flight_info(request).await?.into_inner();
        Ok(Response::new(SchemaResult { schema: info.schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.0.do_get(request).await.map_err(clear)
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        self.0.do_action(request).await.map_err(clear)
    }

    async fn list_actions(&self, request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        self.0.list_actions(request).await.map_err(clear)
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(Status::unimplemented(NOT_HERE))
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(Status::unimplemented(NOT_HERE))
    }

    async fn do_put(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(Status::unimplemented(NOT_HERE))
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(Status::unimplemented(NOT_HERE))
    }
}
