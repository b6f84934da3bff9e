//! Makes of a core WebAssembly module what its host loads:
//!
//! - `caretaker-pack component <module.wasm> <plugin.wasm>`: a component for the plugin host;
//! - `caretaker-pack browser <module.wasm> <folder>`: the module with its JavaScript and types.
//!
//! Both could be command-line tools from the registry; as libraries they build in a fifth of the
//! time and their versions are locked beside the sources they must match.

use std::{error::Error, fs, path::Path, process::ExitCode};

use wasm_bindgen_cli_support::Bindgen;
use wit_component::ComponentEncoder;

const USAGE: &str = "usage: caretaker-pack component <module.wasm> <plugin.wasm>\n       \
                     caretaker-pack browser <module.wasm> <folder>";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["component", module, plugin] => component(module.as_ref(), plugin.as_ref()),
        ["browser", module, folder] => browser(module.as_ref(), folder.as_ref()),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("caretaker-pack: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The module carries its WIT world in a custom section (wit-bindgen put it there).
fn component(module: &Path, plugin: &Path) -> Result<(), Box<dyn Error>> {
    let module = fs::read(module).map_err(|e| format!("cannot read `{}`: {e}", module.display()))?;
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|encoder| encoder.encode())
        .map_err(|e| format!("not a module of a known world: {e:#}"))?;
    fs::write(plugin, component).map_err(|e| format!("cannot write `{}`: {e}", plugin.display()).into())
}

/// The `web` target: an ES module that takes the address of its `.wasm` file.
fn browser(module: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    Bindgen::new()
        .input_path(module)
        .out_name("planner")
        .web(true)?
        .typescript(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)
        .map_err(|e| format!("cannot make a browser package of `{}`: {e:#}", module.display()).into())
}
