//! What the environment says about a test run; read here and nowhere else.

use std::path::{Path, PathBuf};

use kreplicator_proto::v1;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

#[expect(
    clippy::disallowed_methods,
    reason = "test runs are told by the environment how long and how strict they are"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether scenarios run at full length (`KREPLICATOR_SOAK=1`, set by `make soak`).
#[must_use]
pub fn soak() -> bool {
    variable("KREPLICATOR_SOAK").is_some_and(|value| value != "0")
}

/// `full` in a soak, `short` else.
#[must_use]
pub fn length<T>(short: T, full: T) -> T {
    if soak() { full } else { short }
}

/// Whether a skip of `tier` counts as a failure: `KREPLICATOR_REQUIRE` lists it, or this is CI.
#[must_use]
pub fn required(tier: &str) -> bool {
    variable("KREPLICATOR_REQUIRE")
        .is_some_and(|tiers| tiers.split(',').any(|name| name.trim() == tier))
        || variable("CI").is_some_and(|value| value != "false" && value != "0")
}

/// The engine that links of end-to-end tests name (`KREPLICATOR_ENGINE=batches|records`); the default
/// of the software when nothing is said.
///
/// # Panics
/// When it is neither.
#[must_use]
pub fn engine() -> v1::Engine {
    match variable("KREPLICATOR_ENGINE").as_deref() {
        None => v1::Engine::Unspecified,
        Some("batches") => v1::Engine::Batches,
        Some("records") => v1::Engine::Records,
        Some(other) => panic!("KREPLICATOR_ENGINE is {other}, not batches or records"),
    }
}

/// Whether links of end-to-end tests promise every record once: tasks go on without a lease then, and
/// nothing ever repeats.
#[must_use]
pub fn is_exactly_once() -> bool {
    engine() != v1::Engine::Records
}

/// What the random choices of a scenario follow from (`KREPLICATOR_SEED=<number>`, to repeat those of a
/// run that has failed); None: drawn anew.
///
/// # Panics
/// When it is no number.
#[must_use]
pub fn seed() -> Option<u64> {
    let seed = variable("KREPLICATOR_SEED")?;
    Some(seed.parse().expect("KREPLICATOR_SEED is a whole number"))
}

/// Random choices that are made again with `KREPLICATOR_SEED`; prints the seed.
#[must_use]
pub fn chance() -> StdRng {
    let seed = seed().unwrap_or_else(|| rand::rng().random());
    println!("KREPLICATOR_SEED={seed} makes these choices again");
    StdRng::seed_from_u64(seed)
}

/// Where to keep folders of test runs (`KREPLICATOR_TEST_KEEP=<folder>`); None: they are deleted.
#[must_use]
pub fn keep() -> Option<PathBuf> {
    variable("KREPLICATOR_TEST_KEEP").map(PathBuf::from)
}

/// The folder that cargo builds this profile into (`target/debug`), found from the running test.
///
/// # Panics
/// When the running program was not built by cargo.
#[must_use]
pub fn profile_dir() -> PathBuf {
    let program = std::env::current_exe().expect("the path of a running program is known");
    program
        .ancestors()
        .find(|folder| folder.join("deps").is_dir() && folder.join("build").is_dir())
        .unwrap_or_else(|| panic!("{} is not in a target folder of cargo", program.display()))
        .to_owned()
}

/// The folder that holds everything fetched for tests (`target/test-deps`).
#[must_use]
pub fn deps_dir() -> PathBuf {
    let profile = profile_dir();
    profile.parent().unwrap_or(Path::new("/")).join("test-deps")
}

/// The program under test: `KREPLICATOR_BIN`, else `kreplicator` in the folder of this profile.
#[must_use]
pub fn program() -> PathBuf {
    variable("KREPLICATOR_BIN").map_or_else(|| profile_dir().join("kreplicator"), PathBuf::from)
}
