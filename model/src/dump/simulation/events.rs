//! What happens.

use std::time::Duration;

use super::{
    super::{
        commit::Op,
        ledger::Reason,
        names::{AttemptName, Books},
        path::StorePath,
        sweep::{ABANDONED_AFTER, Verdict, judge},
    },
    Broken, Held, Node, OWNERS, Owner, World, books,
    owner::is_whole,
};
use crate::ids::Offset;

/// A sweep of one attempt, step by step.
#[derive(Debug)]
pub(super) struct Sweep {
    folder: StorePath,
    from: Offset,
    attempt: AttemptName,
    verdict: Verdict,
    step: u32,
}

impl World {
    pub(super) fn event(&mut self, owners: &mut [Owner]) {
        let me = self.index_below(OWNERS);
        match self.below(200) {
            0..10 => self.grow(),
            10..168 if owners[me].is_frozen => {}
            10..150 => owners[me].act(self),
            150..156 => owners[me].running = None,
            156..168 => owners[me].take_over(self),
            168..174 => owners[me].is_frozen = !owners[me].is_frozen,
            174..182 => self.late(),
            182..184 => self.store.crash(),
            184..186 => self.store.sync(),
            186..196 => self.sweep(),
            196 => self.user_deletes(),
            197 => {
                let hours = 1 + self.below(4);
                self.now += Duration::from_hours(hours);
            }
            198 if self.below(4) == 0 => self.now += ABANDONED_AFTER,
            _ => {}
        }
    }

    fn grow(&mut self) {
        for _ in 0..=self.below(5) {
            let held = match self.below(6) {
                0 => Held::Nothing(Reason::Control),
                1 => Held::Nothing(Reason::Hole),
                _ => Held::Record(i64::try_from(self.below(3)).expect("small")),
            };
            self.source.push(held);
        }
    }

    /// A change arrives that nobody waits for any more. It may arrive once more.
    fn late(&mut self) {
        if self.store.late.is_empty() {
            return;
        }
        let index = self.index_below(self.store.late.len());
        let op = self.store.late.swap_remove(index);
        self.store.apply(&op);
    }

    fn user_deletes(&mut self) {
        let finals: Vec<(String, Vec<i64>)> = self
            .store
            .finals()
            .map(|(path, offsets)| (path.to_owned(), offsets.to_vec()))
            .collect();
        if finals.is_empty() {
            return;
        }
        // Users take what they see for finished only once it is: files of groups that a kept checkpoint covers.
        let end = self.kept.iter().map(|kept| kept.position.0).max();
        let (path, offsets) = finals[self.index_below(finals.len())].clone();
        if offsets.iter().all(|offset| Some(*offset) < end) {
            self.store.live.remove(&*path);
            self.store.changes += 1;
            self.store.sync();
            self.removed.insert(path, offsets);
        }
    }

    fn sweep(&mut self) {
        match self.sweep.take() {
            Some(sweep) => self.go_on(sweep),
            None => self.begin_sweep(),
        }
    }

    fn committed_at(&self, from: Offset) -> Option<AttemptName> {
        let manifest = self.store.manifest(books().manifest(from).as_str());
        manifest.map(|manifest| manifest.attempt.clone())
    }

    fn begin_sweep(&mut self) {
        let attempts = format!("{}/", books().attempts());
        let found: Vec<(StorePath, Offset, AttemptName)> = self
            .store
            .live
            .iter()
            .filter(|(_, node)| **node == Node::Folder)
            .filter_map(|(path, _)| {
                let (from, name) = path.strip_prefix(&attempts)?.split_once('/')?;
                let from = Books::attempts_offset(from)?;
                let folder = StorePath::new(path).expect("ours");
                Some((folder, from, AttemptName::parse(name)?))
            })
            .collect();
        if found.is_empty() {
            return;
        }
        let (folder, from, attempt) = found[self.index_below(found.len())].clone();
        let made = self.attempts_made.get(folder.as_str());
        let age = made.map_or(Duration::ZERO, |made| self.now.saturating_sub(*made));
        let mut verdict = judge(&attempt, self.committed_at(from).as_ref(), age);
        if self.broken == Broken::SweptAtOnce {
            verdict = Verdict::Overtaken;
        }
        if verdict != Verdict::Keep {
            let step = 0;
            self.sweep = Some(Sweep {
                folder,
                from,
                attempt,
                verdict,
                step,
            });
        }
    }

    fn go_on(&mut self, mut sweep: Sweep) {
        match (sweep.verdict, sweep.step) {
            (Verdict::Keep, _) => return,
            (Verdict::Overtaken, _) => {
                self.store.apply(&Op::Delete(sweep.folder));
                self.store.sync();
                return;
            }
            (Verdict::Committed, _) => {
                self.store.apply(&Op::DeleteEmpty(sweep.folder));
                self.store.sync();
                return;
            }
            (Verdict::Abandoned, 0) => {
                let below = format!("{}/", sweep.folder);
                self.store
                    .live
                    .retain(|path, _| !path.starts_with(&below) || !path.ends_with(".json"));
                self.store.changes += 1;
                self.store.sync();
            }
            (Verdict::Abandoned, 1) => {
                if self
                    .committed_at(sweep.from)
                    .is_some_and(|name| name == sweep.attempt)
                {
                    return;
                }
            }
            (Verdict::Abandoned, _) => {
                self.store.apply(&Op::Delete(sweep.folder));
                self.store.sync();
                return;
            }
        }
        sweep.step += 1;
        self.sweep = Some(sweep);
    }

    /// All that is on its way arrives, everybody thaws and acts for a while, then one owner comes to the end.
    pub(super) fn settle(&mut self, owners: &mut [Owner]) {
        while !self.store.late.is_empty() {
            self.late();
        }
        for owner in owners.iter_mut() {
            owner.is_frozen = false;
        }
        for _ in 0..60 {
            let me = self.index_below(OWNERS);
            owners[me].act(self);
            self.check();
        }
        owners[0].take_over(self);
        for _ in 0..20_000 {
            owners[0].act(self);
            let end = self.kept.iter().map(|kept| kept.position.0).max();
            if end == Some(self.source_end()) {
                break;
            }
        }
        while !self.store.late.is_empty() {
            self.late();
        }
        for (path, node) in &self.store.live {
            assert!(
                path.starts_with(super::super::names::BOOKS) || is_whole(node),
                "{path} is torn"
            );
        }
    }
}
