//! Days and dates in UTC, without leap seconds, as Kafka's timestamps count.
//!
//! # Source
//! Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2021: years begin in March, so that the leap day is
//! the last one; 400 years are a cycle of 146,097 days. Here only for days from 1970 on.

use super::Unit;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
const CYCLE_DAYS: i64 = 146_097;

/// A date and hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
    /// 0 to 23.
    pub(super) hour: i64,
}

/// Of a time that is not negative.
pub(super) fn of(millis: i64) -> Civil {
    let days = millis.div_euclid(DAY_MS) + EPOCH_DAYS;
    let cycle = days.div_euclid(CYCLE_DAYS);
    let day_of_cycle = days.rem_euclid(CYCLE_DAYS);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
        - day_of_cycle / 146_096)
        / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // Months from March on, 0 to 11.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    Civil {
        year: year_of_cycle + cycle * 400 + i64::from(month <= 2),
        month,
        day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
        hour: millis.rem_euclid(DAY_MS) / HOUR_MS,
    }
}

/// The first millisecond of a month, 1 to 12, or 13 for the next January.
fn month_start(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 12 {
        (year + 1, 1)
    } else {
        (year, month)
    };
    let year_from_march = year - i64::from(month <= 2);
    let cycle = year_from_march.div_euclid(400);
    let year_of_cycle = year_from_march.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    (cycle * CYCLE_DAYS + day_of_cycle - EPOCH_DAYS) * DAY_MS
}

/// The first millisecond of the unit that a time lies in.
pub(super) fn start_of(unit: Unit, millis: i64) -> i64 {
    let civil = of(millis);
    match unit {
        Unit::Year => month_start(civil.year, 1),
        Unit::Month => month_start(civil.year, civil.month),
        Unit::Day => millis - millis.rem_euclid(DAY_MS),
        Unit::Hour => millis - millis.rem_euclid(HOUR_MS),
    }
}

/// The first millisecond of the unit after the one that begins at `start`.
pub(super) fn next_start(unit: Unit, start: i64) -> i64 {
    let civil = of(start);
    match unit {
        Unit::Year => month_start(civil.year + 1, 1),
        Unit::Month => month_start(civil.year, civil.month + 1),
        Unit::Day => start.saturating_add(DAY_MS),
        Unit::Hour => start.saturating_add(HOUR_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (millis, (year, month, day, hour)) in [
            (0, (1970, 1, 1, 0)),
            (951_782_399_999, (2000, 2, 28, 23)),
            (951_782_400_000, (2000, 2, 29, 0)),
            (951_868_800_000, (2000, 3, 1, 0)),
            (4_107_542_399_999, (2100, 2, 28, 23)),
            (4_107_542_400_000, (2100, 3, 1, 0)),
            (1_796_029_200_000, (2026, 11, 30, 9)),
            (253_402_300_799_999, (9999, 12, 31, 23)),
        ] {
            let expected = Civil {
                year,
                month,
                day,
                hour,
            };
            assert_eq!(of(millis), expected, "{millis}");
        }
    }

    /// Against counting day by day by the rule of leap years.
    #[test]
    fn every_day_of_five_centuries() {
        let lengths = |year: i64| {
            let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            [
                31,
                28 + i64::from(is_leap),
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ]
        };
        let mut millis = 0;
        for year in 1970..2470 {
            let year_start = millis;
            for (month, length) in (1..).zip(lengths(year)) {
                let month_begin = millis;
                for day in 1..=length {
                    let expected = Civil {
                        year,
                        month,
                        day,
                        hour: 0,
                    };
                    assert_eq!(of(millis), expected);
                    assert_eq!(start_of(Unit::Month, millis), month_begin);
                    assert_eq!(start_of(Unit::Year, millis + 1), year_start);
                    millis += DAY_MS;
                }
                assert_eq!(next_start(Unit::Month, month_begin), millis);
            }
            assert_eq!(next_start(Unit::Year, year_start), millis);
        }
    }
}
