//! The syntax of a CronJob's schedule, with the texts of the library that Kubernetes uses
//! (github.com/robfig/cron `parser.go`). Pure.
//!
//! DIFFERS: an unknown time zone is not named, and an invalid duration has an error of its own.

use crate::api::compact_timestamp::parse_duration;

/// The smallest and the largest number of each field, and the names of numbers.
const FIELDS: [(u32, u32, &str); 5] = [
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 6, "sun mon tue wed thu fri sat"),
];

const DESCRIPTORS: &str = "@yearly @annually @monthly @weekly @daily @midnight @hourly";

/// Checks a schedule; the error says what is wrong.
pub(crate) fn check(schedule: &str) -> Result<(), String> {
    if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        return Err(why.to_owned());
    }
    if let Some(every) = schedule.strip_prefix("@every ") {
        let invalid = |why| format!("failed to parse duration {schedule}: {why}");
        return parse_duration(every).map(drop).map_err(invalid);
    }
    if schedule.starts_with('@') {
        let is_known = DESCRIPTORS.split(' ').any(|it| it == schedule);
        let unknown = || format!("unrecognized descriptor: {schedule}");
        return is_known.then_some(()).ok_or_else(unknown);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (found, fields) = (fields.len(), fields.join(" "));
        return Err(format!(
            "expected exactly 5 fields, found {found}: [{fields}]"
        ));
    }
    fields.iter().zip(FIELDS).try_for_each(|(field, of)| {
        let mut ranges = field.split(',').filter(|range| !range.is_empty());
        ranges.try_for_each(|range| check_range(range, of))
    })
}

fn check_range(range: &str, (min, max, names): (u32, u32, &str)) -> Result<(), String> {
    let number = |text: &str| {
        let why = format!("strconv.Atoi: parsing \"{text}\": invalid syntax");
        let invalid = |_| format!("failed to parse int from {text}: {why}");
        text.parse::<u32>().map_err(invalid)
    };
    let named = |text: &str| {
        let mut names = (min..).zip(names.split_whitespace());
        let known = names.find(|(_, name)| name.eq_ignore_ascii_case(text));
        known.map_or_else(|| number(text), |(number, _)| Ok(number))
    };
    let split = |text, at| str::split_once(text, at).map_or((text, None), |(a, b)| (a, Some(b)));
    let (span, step) = split(range, '/');
    let (start, end) = match split(span, '-') {
        ("*" | "?", _) => (min, max),
        (first, None) if step.is_some() => (named(first)?, max),
        (only, None) => (named(only)?, named(only)?),
        (_, Some(last)) if last.contains('-') => return Err(format!("too many hyphens: {range}")),
        (first, Some(last)) => (named(first)?, named(last)?),
    };
    let step = match step {
        Some(step) if step.contains('/') => return Err(format!("too many slashes: {range}")),
        Some(step) => number(step)?,
        None => 1,
    };
    Err(if start < min {
        format!("beginning of range ({start}) below minimum ({min}): {range}")
    } else if end > max {
        format!("end of range ({end}) above maximum ({max}): {range}")
    } else if start > end {
        format!("beginning of range ({start}) beyond end of range ({end}): {range}")
    } else if step == 0 {
        format!("step of range should be a positive number: {range}")
    } else {
        return Ok(());
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    /// The errors are those of kube-apiserver 1.37.
    #[test]
    fn schedules_are_checked_as_upstream_does() {
        for good in [
            "* * * * *",
            "0,30 */2 1-15/3 JAN-mar MON",
            "?/5 * * * *",
            "@hourly",
            "@every 1h30m",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (schedule, error) in [
            ("x", "expected exactly 5 fields, found 1: [x]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@dayly", "unrecognized descriptor: @dayly"),
            (
                "-1 * * * *",
                "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax",
            ),
            (
                "TZ=X * * * * *",
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ),
        ] {
            assert_eq!(check(schedule), Err(error.to_owned()), "{schedule}");
        }
        assert!(check("@every 1x").is_err());
    }
}
