//! Texts as a NameNode of Hadoop 3.4.2 sends them.

use super::*;

const TRACE: &str = "\n\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.checkNameNodeSafeMode(FSNamesystem.java:1654)\
                     \n\tat org.apache.hadoop.ipc.Server$Handler.run(Server.java:3199)\n";

fn sorted(class: &str, message: &str) -> Fault {
    let error = HdfsError::RPCError(class.to_owned(), format!("{message}{TRACE}"));
    Fault::sort(error, Effect::Change)
}

#[test]
fn refusals_are_sorted_by_their_class() {
    for (class, message, kind, cause) in [
        (
            "java.io.FileNotFoundException",
            "rename source /a/b is not found.",
            Kind::Missing,
            Cause::Absent,
        ),
        (
            "java.io.FileNotFoundException",
            "rename destination parent /a/b/c not found.",
            Kind::Missing,
            Cause::Absent,
        ),
        (
            "java.io.FileNotFoundException",
            "Path is not a file: /a",
            Kind::Missing,
            Cause::Absent,
        ),
        (
            "java.io.IOException",
            "Source /a/b and destination /a/c must both be directories",
            Kind::Taken,
            Cause::Exists,
        ),
        (
            "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException",
            "Failed to CREATE_FILE /a for x on 127.0.0.1 because lease recovery is in progress. Try again later.",
            Kind::Taken,
            Cause::Exists,
        ),
        (
            "org.apache.hadoop.fs.ParentNotDirectoryException",
            "/a/file (is not a directory)",
            Kind::Taken,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.security.AccessControlException",
            "/a/file (is not a directory)",
            Kind::Taken,
            Cause::AboveIsFile,
        ),
        (
            "org.apache.hadoop.security.AccessControlException",
            "Permission denied: user=nobody, access=WRITE, inode=\"/\":root:supergroup:drwxr-xr-x",
            Kind::Denied,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException",
            "`/a is non empty': Directory is not empty",
            Kind::Taken,
            Cause::NotEmpty,
        ),
        (
            "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException",
            "The NameSpace quota (directories and files) of directory /q is exceeded: quota=3 file count=4",
            Kind::Full,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
            "The DiskSpace quota of /q is exceeded: quota = 1048576 B = 1 MB but diskspace consumed = 134217728 B = 128 MB",
            Kind::Full,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException",
            "The directory item limit of /a is exceeded: limit=1048576 items=1048576",
            Kind::Full,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
            "The maximum path component name limit of x in directory / is exceeded: limit=255 length=256",
            Kind::Setting,
            Cause::Other,
        ),
        (
            "java.io.IOException",
            "File /a/b could only be written to 0 of the 1 minReplication nodes. There are 1 datanode(s) running and 1 \
             node(s) are excluded in this operation.",
            Kind::Full,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.ipc.StandbyException",
            "Operation category WRITE is not supported in state standby. Visit https://s.apache.org/sbnn-error",
            Kind::NotNow,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.ipc.RetriableException",
            "Namenode is in startup mode",
            Kind::NotNow,
            Cause::Other,
        ),
        (
            "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException",
            "File does not exist: /a (inode 16390) Holder hdfs_native_client-1 does not have any open files.",
            Kind::Missing,
            Cause::Other,
        ),
        (
            "java.net.SocketTimeoutException",
            "Call From router to nn:8020 failed",
            Kind::Unknown,
            Cause::Other,
        ),
        (
            "java.lang.NullPointerException",
            "",
            Kind::Other,
            Cause::Other,
        ),
    ] {
        let fault = sorted(class, message);
        assert_eq!((fault.kind, fault.cause), (kind, cause), "{fault:?}");
        assert!(
            !fault.text.is_empty() && !fault.text.contains(['\n', '\t']),
            "{fault:?}"
        );
        assert!(!fault.text.contains("java:"), "no stack trace: {fault:?}");
    }
}

#[test]
fn what_is_told_is_one_line_with_the_remedy() {
    let message = "Cannot create file/a. Name node is in safe mode.\nIt was turned on manually. Use \"hdfs dfsadmin \
                   -safemode leave\" to turn safe mode off. NamenodeHostName:vm";
    let fault = sorted(
        "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
        message,
    );
    assert_eq!(fault.kind, Kind::NotNow);
    assert_eq!(
        fault.text,
        "Cannot create file/a. Name node is in safe mode. It was turned on manually. Use \"hdfs dfsadmin -safemode \
         leave\" to turn safe mode off. NamenodeHostName:vm; waits for its end"
    );
    let caused =
        "out of luck\nCaused by: java.io.IOException: x\n\tat a.b.C.d(C.java:1)\n\t... 6 more";
    let fault = Fault::sort(
        HdfsError::RPCError("a.b.OddException".to_owned(), caused.to_owned()),
        Effect::Change,
    );
    assert_eq!(fault.text, "OddException; out of luck");
    let endless = "x".repeat(10_000);
    assert_eq!(one_line(&endless).chars().count(), MESSAGE_CHARS_MAX + 1);
}

#[test]
fn a_lost_connection_leaves_a_change_unknown_and_a_question_undone() {
    for (kind, question, change) in [
        (
            io::ErrorKind::ConnectionRefused,
            Kind::Unreachable,
            Kind::Unreachable,
        ),
        (
            io::ErrorKind::HostUnreachable,
            Kind::Unreachable,
            Kind::Unreachable,
        ),
        (
            io::ErrorKind::ConnectionAborted,
            Kind::Unreachable,
            Kind::Unknown,
        ),
        (
            io::ErrorKind::ConnectionReset,
            Kind::Unreachable,
            Kind::Unknown,
        ),
        (
            io::ErrorKind::UnexpectedEof,
            Kind::Unreachable,
            Kind::Unknown,
        ),
        (io::ErrorKind::TimedOut, Kind::Unreachable, Kind::Unknown),
    ] {
        for (effect, expected) in [(Effect::Question, question), (Effect::Change, change)] {
            let fault = Fault::sort(HdfsError::IOError(kind.into()), effect);
            assert_eq!(fault.kind, expected, "{kind:?} {effect:?}");
        }
    }
    let unknown_host =
        io::Error::other("failed to lookup address information: Name or service not known");
    let fault = Fault::sort(HdfsError::IOError(unknown_host), Effect::Change);
    assert_eq!(fault.kind, Kind::Unreachable);
}

#[test]
fn c094_credentials_standby_and_safe_mode_are_told_apart() {
    let login = Fault::sort(
        HdfsError::SASLError("No Kerberos credentials available".to_owned()),
        Effect::Change,
    );
    assert_eq!(login.kind, Kind::Denied);
    assert!(login.text.contains("keytab"), "{login:?}");
    let standby = sorted("org.apache.hadoop.ipc.StandbyException", "in state standby");
    assert!(standby.text.contains("active NameNode"), "{standby:?}");
    let safe = sorted(
        "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
        "safe mode",
    );
    assert_eq!((standby.kind, safe.kind), (Kind::NotNow, Kind::NotNow));
    assert_ne!(standby.text, safe.text);
}

#[test]
fn a_panic_of_the_library_is_an_unknown_outcome() {
    let panic = std::panic::catch_unwind(|| panic!("not\nUTF-8")).expect_err("it panics");
    let fault = Fault::of_panic(&*panic);
    assert_eq!(fault.kind, Kind::Unknown);
    assert!(fault.text.ends_with("not UTF-8"), "{fault:?}");
}
