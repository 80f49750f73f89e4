//! Compiles the `.proto` files without a protoc, and writes the descriptor set for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script its folder in the environment"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("proto");
    let files =
        ["spec", "store", "api"].map(|name| root.join(format!("kreplicator/v1/{name}.proto")));
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("kreplicator.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .btree_map(".")
        .build_client(false)
        .codec_path("crate::codec::ServerCodec")
        .compile_fds(descriptors.clone())?;
    // Clients read and write the same messages, through the usual codec.
    let clients = out.join("clients");
    fs::create_dir_all(&clients)?;
    tonic_prost_build::configure()
        .extern_path(".kreplicator.v1", "crate::v1")
        .build_server(false)
        .out_dir(clients)
        .compile_fds(descriptors)?;
    Ok(())
}
