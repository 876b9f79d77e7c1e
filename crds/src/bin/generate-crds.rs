//! Writes the files made of the types, from the root of the repository. `--check` only says which are stale.

use std::{error::Error, fs, process::ExitCode};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let only_check = std::env::args().any(|argument| argument == "--check");
    let mut stale = false;
    for file in holdfast_crds::generate::files()? {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file.path);
        if fs::read_to_string(&path).is_ok_and(|committed| committed == file.text) {
            continue;
        }
        stale = true;
        if only_check {
            eprintln!("{} is stale: run make generate", file.path);
        } else {
            path.parent().map(fs::create_dir_all).transpose()?;
            fs::write(&path, file.text)?;
            println!("wrote {}", file.path);
        }
    }
    Ok(if only_check && stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
