//! Rules that every store holds its callers to, so that what works on one works on the other. They
//! are etcd's.

use std::collections::BTreeSet;

use crate::api::{Compare, Error, Op, Result, TXN_BYTES_MAX, TXN_OPS_MAX, Txn};

/// Refuses a transaction that can never succeed.
///
/// # Errors
/// [`Error::Invalid`] with the rule that `txn` breaks.
pub(crate) fn check(txn: &Txn) -> Result<()> {
    for (what, count) in [
        ("changes", txn.ops.len()),
        ("conditions", txn.compares.len()),
    ] {
        if count > TXN_OPS_MAX {
            return invalid(format!(
                "{count} {what} in one transaction, at most {TXN_OPS_MAX}; split it"
            ));
        }
    }
    let bytes: usize = txn.ops.iter().map(op_bytes).sum::<usize>()
        + txn
            .compares
            .iter()
            .map(|c| compare_key(c).len())
            .sum::<usize>();
    if bytes > TXN_BYTES_MAX {
        return invalid(format!(
            "{bytes} bytes in one transaction, at most {TXN_BYTES_MAX}; split it"
        ));
    }
    if txn.compares.iter().any(|c| compare_key(c).is_empty())
        || txn.ops.iter().any(|op| op_key(op).is_empty())
    {
        return invalid("empty key".to_owned());
    }
    check_once(&txn.ops)
}

/// A key may be put once, and not be deleted in the same transaction.
fn check_once(ops: &[Op]) -> Result<()> {
    let mut put = BTreeSet::new();
    for op in ops {
        if let Op::Put { key, .. } = op
            && !put.insert(key.as_str())
        {
            return invalid(format!("key {key} is put twice in one transaction"));
        }
    }
    for op in ops {
        let clash = match op {
            Op::Put { .. } => None,
            Op::Delete(key) => put.get(key.as_str()),
            Op::DeletePrefix(prefix) => put
                .range(prefix.as_str()..)
                .next()
                .filter(|key| key.starts_with(prefix.as_str())),
        };
        if let Some(key) = clash {
            return invalid(format!("key {key} is put and deleted in one transaction"));
        }
    }
    Ok(())
}

fn op_key(op: &Op) -> &str {
    match op {
        Op::Put { key, .. } | Op::Delete(key) | Op::DeletePrefix(key) => key,
    }
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete(key) | Op::DeletePrefix(key) => key.len(),
    }
}

fn compare_key(compare: &Compare) -> &str {
    match compare {
        Compare::Absent(key) | Compare::CreatedAt(key, _) | Compare::ModifiedAt(key, _) => key,
    }
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}
