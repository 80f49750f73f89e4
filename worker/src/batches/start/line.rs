//! Lines are written, and places found in them.

use super::*;

impl Starter {
    /// Writes a line; None: somebody else was faster.
    pub(super) async fn write_line(
        &self,
        lane: &Lane,
        facts: &Facts,
        new: NewLine,
    ) -> Result<Option<Producer>, Fault> {
        let stored = |error: lines::Error| stored_fault(&error);
        let producer = match new.producer {
            NextProducer::Bumped(producer) => producer,
            NextProducer::Fresh => Producer {
                id: self.fresh_producer().await?,
                epoch: ProducerEpoch(0),
            },
        };
        let base = self.base(lane, new.from, facts.source_end).await?;
        let line = Line {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base,
            target_from: facts.view.end,
        };
        match new.why {
            Why::First | Why::OtherEngine => {}
            Why::Restart(reason) => {
                warn!(task = %lane.spec.id, %reason, from = %base, repeats_max = new.repeats_max,
                    "counting begins anew");
                if new.repeats_max != Some(0) {
                    lane.break_promise(reason);
                }
            }
        }
        let entry = NewEntry {
            partition: lane.spec.id.partition,
            line,
            owner_epoch: lane.spec.epoch,
        };
        let link_topic = lane.spec.id.link_topic();
        let written = self
            .lines
            .write(&link_topic, &facts.line_target, &facts.lines, entry)
            .await;
        Ok(match written.map_err(stored)? {
            Written::Conflict(_) => None,
            // Its first checkpoint comes with the next save of the link: until then the line itself says it.
            Written::Done(_) => Some(producer),
        })
    }

    /// The offset after the records that a new line passes over.
    async fn base(&self, lane: &Lane, from: ReadFrom, end: Offset) -> Result<Offset, Fault> {
        if from.skip_records == 0 {
            return Ok(from.offset);
        }
        let stretch = Stretch {
            at: lane.source.clone(),
            from: from.offset,
            to: end,
            isolation: Isolation::Committed,
        };
        let (client, patience) = (&self.source.client, self.config.scan_timeout);
        let after = self
            .counts
            .after(client, &stretch, from.skip_records, patience);
        let found = Box::pin(after).await?;
        found.ok_or_else(|| {
            let records = from.skip_records;
            let text = format!(
                "source partition {} has fewer than {records} records from {} on",
                lane.source, from.offset
            );
            Fault::new(Kind::Truncated, text)
        })
    }

    pub(super) async fn rewind(
        &self,
        lane: &Lane,
        mut rewind: Rewind,
    ) -> Result<Option<(ReadFrom, Count)>, Fault> {
        let patience = self.config.scan_timeout;
        loop {
            let (from, to) = rewind.stretch();
            let stretch = Stretch {
                at: lane.source.clone(),
                from,
                to,
                isolation: Isolation::Committed,
            };
            let count = self.counts.count(&self.source.client, &stretch, patience);
            let counted = Box::pin(count).await?;
            match rewind.counted(counted) {
                Some(Ok(from)) => return Ok(Some((from, rewind.count()))),
                Some(Err(wider)) => rewind = wider,
                None => return Ok(None),
            }
        }
    }

    /// Reads what the target's log holds of a producer, or where that is nothing, finds out whether it
    /// may be read.
    pub(in crate::batches) async fn read_tail(
        &self,
        lane: &Lane,
        producer: Producer,
        from: Offset,
        end: Offset,
    ) -> Result<Tail, Unread> {
        let stretch = Stretch {
            at: lane.target.clone(),
            from,
            to: end,
            isolation: Isolation::Uncommitted,
        };
        let patience = self.config.scan_timeout;
        let client = &self.target.client;
        let mut tail = TailScan::new(producer, from);
        let looked = if from < end {
            let look = async {
                let mut scan = self.tails.begin(client, &stretch, patience).await;
                while let Some((batch, _)) = scan.next().await? {
                    note(&mut tail, &batch);
                }
                Ok(())
            };
            Box::pin(look).await
        } else {
            Box::pin(scan::probe(client, &stretch, Instant::now() + patience)).await
        };
        match looked {
            Ok(()) => {
                tail.reached(end);
                Ok(Tail::Read(tail))
            }
            Err(Unread::Denied(_)) => Ok(Tail::Unreadable),
            Err(Unread::Late(fault)) => Err(Unread::Late(at_target(fault))),
            Err(Unread::Failed(fault)) => Err(Unread::Failed(at_target(fault))),
        }
    }
}

fn at_target(fault: Fault) -> Fault {
    Fault::new(Kind::Target, fault.cause)
}

fn note(tail: &mut TailScan, batch: &Batch) {
    let header = batch.header();
    let writer = header.producer.is_some().then_some(Producer {
        id: ProducerId(header.producer.id),
        epoch: ProducerEpoch(header.producer.epoch),
    });
    let first = exact::Sequence::new(header.producer.base_sequence);
    let records = u64::from(header.last_offset_delta.unsigned_abs()) + 1;
    tail.batch(writer, first, records, Offset(header.next_offset()));
}
