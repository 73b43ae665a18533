//! Parse the time of a sample, in the notations that tools use.

/// A time of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    Utc(i64),
    Local(i64),
}

/// Days before 1970 that times without a date are put on: no date that is read lies there.
const UNDATED_DAYS: i64 = 365;
const DAY_NS: i64 = 86_400_000_000_000;

/// Whether a local time is one of a file that writes no dates, see [`Undated`].
pub(crate) fn is_undated(local_ns: i64) -> bool {
    local_ns < 0
}

/// Times without a date (`-o T`): as if from 1969-01-01 on. How far they lie apart is known, when they were is not.
#[derive(Debug, Default)]
pub(super) struct Undated {
    day: i64,
    last: i64,
}

impl Undated {
    pub(super) fn place(&mut self, clock: i64) -> Time {
        // Half a day back is a midnight; a little back is a clock that was set.
        if clock < self.last - DAY_NS / 2 {
            self.day = (self.day + 1).min(UNDATED_DAYS - 1);
        }
        self.last = clock;
        Time::Local((self.day - UNDATED_DAYS) * DAY_NS + clock)
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar; `None` for an impossible one.
pub(super) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    // Beyond these years nanoseconds leave 64 bits; no capture is older.
    if !(1970..2200).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March, so that the leap day is the last of its year.
    let y = if month <= 2 { year - 1 } else { year };
    let m = (month + 9) % 12;
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    Some(365 * y + y / 4 - y / 100 + y / 400 + day_of_year - 719_468)
}

pub(super) fn whole(text: &str) -> Option<i64> {
    (!text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Nanoseconds of `HH:MM:SS[.fraction]`.
pub(super) fn time_of_day(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let mut parts = clock.split(':').map(whole);
    let (h, m, s) = (parts.next()??, parts.next()??, parts.next()??);
    // 60: a leap second.
    if parts.next().is_some() || h > 23 || m > 59 || s > 60 {
        return None;
    }
    let nanos = whole(fraction)? * 10_i64.pow(9 - u32::try_from(fraction.len()).ok()?);
    Some((h * 3600 + m * 60 + s) * 1_000_000_000 + nanos)
}

/// `YYYY/MM/DD HH:MM:SS.mmm` (local), the same with dashes, `T` and a zone (UTC), or a UNIX time.
///
/// Files that went through a spreadsheet or another tool have the time of their country: `DD.MM.YYYY` and
/// `MM/DD/YYYY ... AM|PM` can be told apart from it, day and month without such a mark cannot.
pub(super) fn parse_time(text: &str) -> Option<Time> {
    let text = text.trim();
    if let Some(time) = unix_time(text) {
        return Some(Time::Utc(time));
    }
    localised(text).or_else(|| parse_ctime(text)).or_else(|| parse_iso(text))
}

/// `20.06.2026 17:05:19` and `6/20/2026 5:05:19 PM`.
fn localised(text: &str) -> Option<Time> {
    let mut words = text.split_whitespace();
    let (date, clock, mark) = (words.next()?, words.next()?, words.next());
    let numbers = |separator| {
        let mut parts = date.split(separator).map(whole);
        let found = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(found)
    };
    let time = time_of_day(clock)?;
    let (day, time) = match mark {
        None => {
            let (day, month, year) = numbers('.')?;
            (days(year, month, day)?, time)
        }
        Some(mark @ ("AM" | "PM" | "am" | "pm")) => {
            let (month, day, year) = numbers('/')?;
            const HALF_DAY_NS: i64 = 12 * 3600 * 1_000_000_000;
            // 12 AM is midnight, 12 PM is noon.
            let afternoon = if mark.eq_ignore_ascii_case("pm") { HALF_DAY_NS } else { 0 };
            (days(year, month, day)?, time.checked_rem(HALF_DAY_NS)? + afternoon)
        }
        Some(_) => return None,
    };
    words.next().is_none().then_some(Time::Local(day * 86_400_000_000_000 + time))
}

fn parse_iso(text: &str) -> Option<Time> {
    let (date, rest) = text.split_once([' ', 'T'])?;
    let mut parts = date.split(['/', '-']).map(whole);
    let day = days(parts.next()??, parts.next()??, parts.next()??)?;
    if parts.next().is_some() {
        return None;
    }
    let rest = rest.trim();
    let (clock, zone_s) = match (rest.strip_suffix('Z'), rest.rfind(['+', '-'])) {
        (Some(clock), _) => (clock, Some(0)),
        (None, Some(at)) => {
            let (hours, minutes) = rest.get(at + 1..)?.split_once(':')?;
            let seconds = whole(hours)? * 3600 + whole(minutes)? * 60;
            (rest.get(..at)?, Some(if rest.get(at..=at)? == "-" { -seconds } else { seconds }))
        }
        (None, None) => (rest, None),
    };
    let local = day * 86_400_000_000_000 + time_of_day(clock.trim())?;
    Some(match zone_s {
        Some(zone) => Time::Utc(local - zone.min(86_400) * 1_000_000_000),
        None => Time::Local(local),
    })
}

/// A UNIX time in s, ms, us or ns by its size: all between 2001 and 2200 or so.
pub(super) fn unix_time(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if seconds.is_empty()
        || seconds.len() > 19
        || !seconds.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let value: i64 = seconds.parse().ok()?;
    let per_unit = match seconds.len() {
        10 => 1_000_000_000,
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => return None,
    };
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let part = digits.parse::<i64>().ok()? / (1_000_000_000 / per_unit);
    value.checked_mul(per_unit)?.checked_add(part)
}

/// `Tue Dec 30 10:49:50 2025`, as C's `ctime` writes it: local.
pub(super) fn parse_ctime(text: &str) -> Option<Time> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_whitespace().skip(1);
    let (month, day, clock, year) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().zip(1..).find(|(name, _)| **name == month)?.1;
    let day = days(whole(year)?, month, whole(day)?)?;
    words.next().is_none().then_some(Time::Local(day * 86_400_000_000_000 + time_of_day(clock)?))
}

/// The same for the formats that write the date and the time of day in columns of their own: `YYYYMMDD`.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    if text.len() != 8 {
        return None;
    }
    days(whole(text.get(..4)?)?, whole(text.get(4..6)?)?, whole(text.get(6..)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        // `date -u -d '2026-06-20 17:05:19' +%s` is 1781975119.
        let ns = 1_781_975_119_493_000_000;
        assert_eq!(parse_time("2026/06/20 17:05:19.493"), Some(Time::Local(ns)));
        assert_eq!(parse_time("2026-06-20T17:05:19.493Z"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("2026-06-20T19:05:19.493+02:00"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("2026-06-20 12:05:19.493-05:00"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1781975119.493"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1781975119493"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1781975119493000"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1970/01/01 00:00:00"), Some(Time::Local(0)));
        // 2024-02-29 is day 19782.
        assert_eq!(parse_time("2024/02/29 00:00:00.000"), Some(Time::Local(19_782 * 86_400_000_000_000)));
        assert_eq!(parse_ctime("Sat Jun 20 17:05:19 2026"), Some(Time::Local(1_781_975_119_000_000_000)));
        assert_eq!(parse_ctime("Fri Aug  4 11:44:30 2023"), parse_time("2023/08/04 11:44:30"));
        let local = Some(Time::Local(1_781_975_119_000_000_000));
        for same in [
            "20.06.2026 17:05:19",
            "6/20/2026 5:05:19 PM",
            "06/20/2026 05:05:19 pm",
            "Sat Jun 20 17:05:19 2026",
        ] {
            assert_eq!(parse_time(same), local, "{same}");
        }
        assert_eq!(parse_time("6/20/2026 12:00:00 AM"), parse_time("2026/06/20 00:00:00"));
        assert_eq!(parse_time("6/20/2026 12:00:00 PM"), parse_time("2026/06/20 12:00:00"));
        // Day and month cannot be told apart.
        assert_eq!(parse_time("06/07/2026 17:05:19"), None);
        for bad in ["", "Sat Jun 20", "Sa Juni 20 17:05:19 2026", "Sat Jun 31 17:05:19 2026", "a b c d e f"] {
            assert_eq!(parse_ctime(bad), None, "{bad}");
        }
        for bad in [
            "",
            "2026/02/29 00:00:00",
            "2026/13/01 00:00:00",
            "2026/06/20",
            "2026/06/20 25:00:00",
            "12:00",
            "[N/A]",
            "2026/06/20 1:2",
            "2026/06/20 00:00:00\u{e9}",
            "99999999999999999999",
        ] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }
}
