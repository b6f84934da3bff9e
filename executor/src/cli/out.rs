//! The two streams. A reader that has seen enough and closed its end is no error.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};

use crate::error::{Error, Result};

/// Of a line with names of columns.
pub(super) const DIM: Style = Style::new().dimmed();
/// There is one standard output, and no way back once it is closed.
static CLOSED: AtomicBool = AtomicBool::new(false);

const RED: Style = AnsiColor::Red.on_default().bold();

/// Writes a line to standard output; styles go only to a terminal.
///
/// # Errors
/// `Fatal` when it can't be written, as on a full disk.
pub(super) fn say(text: impl Display) -> Result<()> {
    let mut out = anstream::stdout().lock();
    ended(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Writes text as it is to standard output.
///
/// # Errors
/// As [`say`].
pub(super) fn write(text: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    ended(out.write_all(text).and_then(|()| out.flush()))
}

/// Text in a style.
pub(super) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes an error to standard error, which is the last resort: a failure to do so is nobody's.
pub(super) fn complain(text: impl Display) {
    let text = text.to_string().replace('\n', "\n           ");
    let _ = writeln!(anstream::stderr().lock(), "{} {text}", styled(RED, "caretaker:"));
}

/// Whether the reader of standard output is gone: a command that only shows has nothing left to do.
pub(super) fn closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

fn ended(written: std::io::Result<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {
            CLOSED.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(e) => Err(Error::Fatal(format!("can't write to standard output: {e}"))),
        Ok(()) => Ok(()),
    }
}
