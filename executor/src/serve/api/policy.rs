//! Who decides, and who may come to.
//!
//! | route | answer |
//! |---|---|
//! | `GET /v1/policy` | the active planner, the candidate beside it, what can be gone back to, every plugin that is kept |
//! | `POST /v1/policy` `{"action": "use", "plugin": SHA-256 or "built-in"}` | this one decides from now on |
//! | `… {"action": "load", "path", "sha256"?, "shadow"?}` | the same for a file of this machine, or it is the candidate |
//! | `… {"action": "shadow", "plugin": SHA-256 or null}` | this one is the candidate, or nobody is |
//! | `… {"action": "promote", "force"?}` | the candidate decides; 429: it has not passed the gate |
//! | `… {"action": "rollback"}` | what was active before decides again |

use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json as value};

use super::call::{Call, json};
use super::{Answer, Api, Refused, got, posted};
use crate::decide::{Fallback, Planner, Plugin, Shadow, Source, is_sha256};

/// The routes.
pub(super) fn routes() -> Router<Api> {
    let routes = got(Router::new(), "/v1/policy", show);
    posted(routes, "/v1/policy", change)
}

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
enum Change {
    Use {
        plugin: String,
    },
    Load {
        path: String,
        #[serde(default)]
        sha256: Option<String>,
        #[serde(default)]
        shadow: bool,
    },
    Shadow {
        plugin: Option<String>,
    },
    Promote {
        #[serde(default)]
        force: bool,
    },
    Rollback {},
}

async fn show(call: Call) -> Answer {
    Ok(Json(shown(&call.api).await?).into_response())
}

async fn change(call: Call, body: Body) -> Answer {
    let (api, decider) = (&call.api, &call.api.tender.decider);
    match json(body).await? {
        Change::Use { plugin } if plugin == "built-in" => decider.switch(Planner::BuiltIn),
        Change::Use { plugin } => decider.switch(Planner::Plugin(kept(api, &plugin).await?)),
        Change::Load { path, sha256, shadow } => {
            if sha256.as_ref().is_some_and(|digest| !is_sha256(digest)) {
                return Err(Refused::invalid("`sha256` is 64 hexadecimal digits"));
            }
            let sha256 = sha256.map(|digest| digest.to_ascii_lowercase());
            let plugin = decider.load(&Source { path: path.into(), sha256 }).await?;
            match shadow {
                true => decider.beside(Some(plugin)),
                false => decider.switch(Planner::Plugin(plugin)),
            }
        }
        Change::Shadow { plugin: None } => decider.beside(None),
        Change::Shadow { plugin: Some(plugin) } => decider.beside(Some(kept(api, &plugin).await?)),
        Change::Promote { force } => drop(decider.promote(force)?),
        Change::Rollback {} => drop(decider.roll_back()?),
    }
    Ok(Json(shown(api).await?).into_response())
}

/// A plugin that was loaded once, by its SHA-256 or the beginning of it.
async fn kept(api: &Api, sha256: &str) -> Result<Arc<Plugin>, Refused> {
    let registry = &api.tender.registry;
    let all = registry.plugins().await?;
    let mut found = all.iter().filter(|plugin| sha256.len() >= 8 && plugin.sha256.starts_with(sha256));
    let (Some(one), None) = (found.next(), found.next()) else {
        return Err(Refused::invalid(format!(
            "`{sha256}` is not the SHA-256 of one plugin that is kept; load its file"
        )));
    };
    let file = registry.plugin(&one.sha256).await?;
    let file = file.ok_or_else(|| Refused::invalid(format!("plugin `{sha256}` is not kept any more")))?;
    Ok(Arc::new(Plugin::of(&one.sha256, file, &api.tender.decider.choice().config).await?))
}

async fn shown(api: &Api) -> Result<Value, Refused> {
    let decider = &api.tender.decider;
    let choice = decider.choice();
    Ok(value!({
        "active": planner(&decider.active()),
        "before": decider.before().iter().map(planner).collect::<Vec<_>>(),
        "shadow": decider.shadow().map(|shadow| candidate(&shadow)),
        "fallback": if choice.fallback == Fallback::LastGood { "last-good" } else { "built-in" },
        "gate": choice.gate,
        "plugins": api.tender.registry.plugins().await?,
    }))
}

fn planner(planner: &Planner) -> Value {
    let sha256 = match planner {
        Planner::BuiltIn => None,
        Planner::Plugin(plugin) => Some(&plugin.sha256),
    };
    value!({ "name": planner.name(), "sha256": sha256 })
}

fn candidate(shadow: &Shadow) -> Value {
    let (evaluations, refused, differed) = shadow.seen();
    value!({
        "name": shadow.plugin.name(), "sha256": shadow.plugin.sha256,
        "evaluations": evaluations, "refused": refused, "differed": differed,
    })
}
