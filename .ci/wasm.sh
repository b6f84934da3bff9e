#!/usr/bin/env bash
# Builds all that runs as WebAssembly:
#
#   .ci/wasm.sh [target-dir]       default `target`, below the repository's root
#
#   <target-dir>/wasm/planner.wasm   the planner as a plugin (the host's tests load it)
#   <target-dir>/wasm/javascript.wasm  the template of a plugin in JavaScript, built
#   web/src/generated                the planner for the browser, with its types
#   web/dist                         the pages: the preview, ready to be served by anything that serves files, and the
#                                    fleet, which the binary has in it when it is built after this
#
# A step whose inputs did not change costs its check only. WASM_TOOLCHAIN and its kin are those
# of wasm-toolchain.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

TARGET_DIR=${1:-target}
MODULES=$TARGET_DIR/wasm/wasm32-unknown-unknown
PACK=$TARGET_DIR/pack/debug/caretaker-pack
PLUGIN=$TARGET_DIR/wasm/planner.wasm

say() { printf 'wasm: %s\n' "$*"; }
die() { printf 'wasm: error: %s\n' "$*" >&2; exit 1; }
command -v cargo >/dev/null || die "no cargo: install Rust with rustup (https://rustup.rs)"
command -v npm >/dev/null || die "no npm: install Node.js 20.19 or newer"

for_wasm() { # profile, packages...
  .ci/wasm-toolchain.sh --run cargo build --quiet --locked --profile "$1" \
    --target wasm32-unknown-unknown --target-dir "$TARGET_DIR/wasm" "${@:2}" \
    || die "the planner does not build for wasm32 (see above)"
}
say "the planner, its plugin and its browser module for wasm32"
for_wasm wasm -p caretaker-planner -p caretaker-web
for_wasm plugin -p caretaker-plugin

say "the packer (about a minute and a half when it is new)"
cargo build --quiet --locked --manifest-path host/pack/Cargo.toml --target-dir "$TARGET_DIR/pack" \
  || die "host/pack does not build (see above)"

say "$PLUGIN"
"$PACK" component "$MODULES/plugin/caretaker_plugin.wasm" "$PLUGIN" || die "the plugin could not be packed"
say "web/src/generated"
"$PACK" browser "$MODULES/wasm/caretaker_web.wasm" web/src/generated || die "the browser package could not be made"

packages() {
  # npm writes this file last, so an interrupted install is done again.
  if [ node_modules/.package-lock.json -nt package-lock.json ]; then
    say "npm packages are there"
  else
    say "npm packages, as package-lock.json names them"
    npm ci --no-audit --no-fund --loglevel=error || die "npm could not install the packages; is its registry reachable?"
    touch node_modules/.package-lock.json
  fi
}

say "$TARGET_DIR/wasm/javascript.wasm"
JAVASCRIPT=$(cd "$TARGET_DIR" && pwd)/wasm/javascript.wasm
(cd host/templates/javascript && packages && npm run --silent build -- --output "$JAVASCRIPT" >&2) \
  || die "the template in JavaScript does not build (see above)"

cd web
packages
say "web/dist"
npm run --silent build || die "the page does not build (see above)"
