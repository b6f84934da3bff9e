//! The binary `caretaker`: everything is in the library, so that tests can reach it.

use std::process::ExitCode;

/// A pass allocates batches on many threads and frees them on others. glibc's arenas keep what they
/// once held: a 2 GiB prefix that needs 0.3 GB then takes 0.9 GB from the machine.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    executor::cli::main()
}
