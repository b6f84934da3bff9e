//! A PostgreSQL of the tests' own, on a free loopback port, for as long as this process lives.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sqlx::{Connection, Executor};
use tempfile::TempDir;

struct Server {
    port: u16,
    _dir: TempDir,
}

static SERVER: OnceLock<Server> = OnceLock::new();

/// The address of a fresh database.
pub(super) async fn database() -> String {
    let port = SERVER.get_or_init(start).port;
    let name = format!("t{}", uuid::Uuid::new_v4().simple());
    let address = |database: &str| format!("postgres://caretaker@127.0.0.1:{port}/{database}");
    let mut connection = sqlx::PgConnection::connect(&address("postgres")).await.expect("the server answers");
    connection.execute(format!("CREATE DATABASE {name}").as_str()).await.expect("it is made");
    address(&name)
}

/// Debian keeps each version's programs in a folder of its own.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|entry| entry.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| name.into())
}

/// PostgreSQL does not run as root; and it ends with this process, however that ends.
fn command(name: &str, dir: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    }
    command.arg(program(name)).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn start() -> Server {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let data = dir.path().join("data");
    let mut init = command("initdb", dir.path());
    init.args(["-D", data.to_str().expect("plain"), "-U", "caretaker", "-A", "trust", "--no-sync"]);
    let made = init.status().expect("PostgreSQL is installed (`.ci/setup database`)");
    assert!(made.success(), "initdb failed");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    // The thread that starts it must not end: its death is what the system tells the server of.
    let (ready, started) = std::sync::mpsc::channel();
    let folder = dir.path().to_path_buf();
    std::thread::spawn(move || {
        let mut server = command("postgres", &folder);
        server.args(["-D", "data", "-k", folder.to_str().expect("plain"), "-p", &port.to_string()]);
        server.args(["-c", "fsync=off", "-c", "max_connections=300", "-c", "listen_addresses=127.0.0.1"]);
        let mut child = server.spawn().expect("it starts");
        ready.send(()).expect("somebody waits");
        let _ = child.wait();
    });
    started.recv().expect("it was started");
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() || !answers(dir.path(), port) {
        std::thread::yield_now();
    }
    Server { port, _dir: dir }
}

fn answers(dir: &Path, port: u16) -> bool {
    let mut ask = command("pg_isready", dir);
    ask.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]).status().is_ok_and(|status| status.success())
}
