//! A plan as text for people; stable, so that golden tests can compare it.

use std::{collections::BTreeMap, fmt};

use super::types::{Move, Plan};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut workers: BTreeMap<_, (usize, usize, usize)> = BTreeMap::new();
        for worker in self.placements.values() {
            workers.entry(worker).or_default().0 += 1;
        }
        for step in &self.moves {
            workers.entry(&step.to).or_default().1 += 1;
            if let Some(from) = &step.from {
                workers.entry(from).or_default().2 += 1;
            }
        }
        writeln!(
            f,
            "{} tasks placed, {} unplaced, {} moves (at least {})",
            self.placements.len(),
            self.unplaced.len(),
            self.moves.len(),
            self.moves_lower_bound
        )?;
        for (worker, (tasks, gained, given)) in workers {
            writeln!(f, "{worker}: {tasks} tasks, +{gained} -{given}")?;
        }
        for step in &self.moves {
            writeln!(f, "move {step}")?;
        }
        for (task, why) in &self.unplaced {
            writeln!(f, "unplaced {task}: {why}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Some(from) => write!(f, "{}: {from} -> {} ({})", self.task, self.to, self.reason),
            None => write!(f, "{}: -> {} ({})", self.task, self.to, self.reason),
        }
    }
}
