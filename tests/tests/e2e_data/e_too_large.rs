//! A record of 5 MB on its way into a topic that takes 1 MB.

use kreplicator_tests::contents::{Rec, fill};

use crate::{sides::SIDES, stage::scenario};

const TOPIC: &str = "parcels";
const SMALL: usize = 20;
const LARGE_BYTES: usize = 5_000_000;
const RAISED: (&str, &str) = ("max.message.bytes", "10485760");
/// Sizes count after compression, so there is none.
const PLAIN: (&str, &str) = ("compression.type", "uncompressed");

#[test]
fn c031_a_record_too_large_for_the_target_halts_its_partition_alone_by_either_engine() {
    scenario(async |stage| {
        stage.a.create_topic(TOPIC, 2, &[RAISED]).await?;
        for side in SIDES {
            let limited = [PLAIN, ("max.message.bytes", "1048588")];
            let copy = side.copy_of(TOPIC);
            stage.b.create_topic(&copy, 2, &limited).await?;
        }
        let small: Vec<Rec> = (0..2 * SMALL)
            .map(|number| Rec::new(number.to_string()))
            .collect();
        let mut mixed = small.clone();
        mixed.insert(SMALL, Rec::new(vec![b'x'; LARGE_BYTES]));
        fill(&stage.a, TOPIC, 0, &mixed)?;
        fill(&stage.a, TOPIC, 1, &small)?;
        stage.mirror(&[TOPIC]).await?;
        let at = i64::try_from(SMALL)?;
        stage.halted(TOPIC, 0, at, &["max.message.bytes"]).await?;
        stage.check_copies(TOPIC, 0, &mixed[..SMALL]).await?;
        let end = i64::try_from(small.len())?;
        stage.caught_up(TOPIC, 1, end).await?;
        stage.check_copies(TOPIC, 1, &small).await?;

        for side in SIDES {
            let copy = side.copy_of(TOPIC);
            stage.b.configure_topic(&copy, &[PLAIN, RAISED]).await?;
        }
        stage.caught_up(TOPIC, 0, end + 1).await?;
        stage.check_copies(TOPIC, 0, &mixed).await?;
        stage.leave(&[TOPIC]).await
    });
}
