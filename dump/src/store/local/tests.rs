//! What only a local folder can meet.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    time::SystemTime,
};

use tempfile::TempDir;

use super::*;

fn path(path: &str) -> StorePath {
    StorePath::new(path).expect("a legal path")
}

fn store(folder: &TempDir) -> LocalStore {
    LocalStore::new(&LocalSettings::new(folder.path().join("root"))).expect("usable settings")
}

async fn ready() -> (TempDir, LocalStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(&folder);
    store.ready().await.expect("ready");
    (folder, store)
}

#[test]
fn all_faults_of_the_settings_are_told_at_once() {
    let settings = LocalSettings {
        root: "data".into(),
        deadline: Duration::ZERO,
    };
    let refused = LocalStore::new(&settings).expect_err("refused");
    assert_eq!(refused.kind, Kind::Setting);
    assert!(refused.text.contains("root: is relative"), "{refused}");
    assert!(refused.text.contains("deadline: "), "{refused}");
}

#[tokio::test]
async fn a_root_that_is_gone_is_an_error_and_no_empty_store() {
    let (folder, store) = ready().await;
    fs::remove_dir(folder.path().join("root")).expect("it is empty");
    let (a, b) = (path("a"), path("b/c"));
    let told = [
        store.length(&a).await.expect_err("gone"),
        store.confirm(&a).await.expect_err("gone"),
        store.read(&a, 0, 1).await.expect_err("gone"),
        store.list(None, None, 1).await.expect_err("gone"),
        store.delete(&a).await.expect_err("gone"),
        store.delete_empty(&a).await.expect_err("gone"),
        store.make_folder(&b).await.expect_err("gone"),
        store.rename(&a, &b).await.expect_err("gone"),
        store.create(&a).await.expect_err("gone"),
    ];
    for error in told {
        assert_eq!(error.kind, Kind::Missing, "{error}");
        assert!(error.text.contains("mounted"), "{error}");
    }
    assert!(!folder.path().join("root").exists(), "and is not made anew");
    store.ready().await.expect("but when that is asked for");
}

#[tokio::test]
async fn a_file_where_the_root_should_be_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("root"), "").expect("written");
    let refused = store(&folder).ready().await.expect_err("a file is there");
    assert_eq!(refused.kind, Kind::Taken, "{refused}");
    assert_eq!(
        refused.to_string(),
        format!(
            "file://{}/root/: a file or a symbolic link is where a folder should be; move it away",
            folder.path().display()
        )
    );
}

#[tokio::test]
async fn nothing_is_reached_by_a_symbolic_link() {
    let (folder, store) = ready().await;
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "1").expect("written");
    symlink(&outside, folder.path().join("root/link")).expect("linked");
    symlink(outside.join("secret"), folder.path().join("root/file")).expect("linked");
    for hidden in ["link/secret", "file"] {
        assert_eq!(store.length(&path(hidden)).await, Ok(None));
        assert_eq!(store.confirm(&path(hidden)).await, Ok(None));
        assert_eq!(store.read(&path(hidden), 0, 9).await, Ok(None));
    }
    for blocked in ["link/new", "link", "file"] {
        let refused = store.create(&path(blocked)).await.expect_err("refused");
        assert_eq!(refused.kind, Kind::Taken, "{refused}");
    }
    let refused = store.make_folder(&path("link/a")).await;
    assert_eq!(refused.expect_err("refused").kind, Kind::Taken);
    assert_eq!(store.list(None, None, 9).await, Ok(Vec::new()));
    for link in ["link/secret", "link", "file"] {
        store.delete(&path(link)).await.expect("well done");
    }
    assert!(outside.join("secret").exists(), "only links are deleted");
    assert!(!folder.path().join("root/link").exists());
}

#[tokio::test]
async fn what_is_no_path_of_ours_is_left_out_and_deleted_with_its_folder() {
    let (folder, store) = ready().await;
    let in_it = folder.path().join("root/in");
    fs::create_dir(&in_it).expect("made");
    for name in [
        &b"\xff\xfe"[..],
        b"a:b",
        b"back\\slash",
        b"new\nline",
        b"good",
    ] {
        fs::write(in_it.join(OsStr::from_bytes(name)), "x").expect("written");
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        in_it.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("made");
    let entries = store.list(Some(&path("in")), None, 9).await.expect("up");
    let names: Vec<_> = entries.iter().map(|entry| entry.path.name()).collect();
    assert_eq!(names, ["good"]);
    assert_eq!(
        store.read(&path("in/pipe"), 0, 1).await,
        Ok(None),
        "nor waited for"
    );
    store.delete(&path("in")).await.expect("deleted");
    assert!(!in_it.exists());
}

#[tokio::test]
async fn a_file_of_the_future_has_no_age() {
    let (folder, store) = ready().await;
    let file = File::create(folder.path().join("root/future")).expect("made");
    file.set_modified(SystemTime::now() + Duration::from_hours(48))
        .expect("set");
    let entries = store.list(None, None, 9).await.expect("up");
    assert_eq!(entries[0].age, Duration::ZERO);
}

#[tokio::test]
async fn calls_that_hang_end_at_the_deadline_and_take_no_more_threads() {
    let calls = Calls::new(Duration::from_millis(100));
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let hang = || {
        let wait = Arc::clone(&wait);
        calls.run(Effect::Change, move || {
            let wait = wait.lock().expect("not poisoned");
            assert!(wait.recv().is_err(), "the sender is dropped");
            Ok(())
        })
    };
    let hanging = futures::future::join_all((0..16).map(|_| hang())).await;
    for outcome in hanging {
        let fault = outcome.expect_err("it hangs");
        assert_eq!(fault.kind, Kind::Unknown, "{fault:?}");
        assert!(fault.text.contains("may be done yet"), "{fault:?}");
    }
    let fault = hang().await.expect_err("no turn");
    assert_eq!(fault.kind, Kind::Unreachable, "{fault:?}");
    drop(release);
    let free = calls.run(Effect::Question, || Ok(7));
    assert_eq!(free.await, Ok(7), "their threads are back");
}
