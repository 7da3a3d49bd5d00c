//! Durations and sizes as people write them.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 6] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// How durations are written, for faults.
pub(crate) const DURATION_FORM: &str =
    "a duration such as \"100ms\", \"5s\", \"15m\", \"1h\" or \"7d\"";

/// How sizes are written, for faults.
pub(crate) const SIZE_FORM: &str = "a size such as \"256KiB\", \"1MiB\" or a number of bytes";

/// Reads `100ms`, `5s`, `15m`, `1h`, `7d`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    scaled(text, &DURATIONS).map(Duration::from_millis)
}

/// Reads `256KiB`, `1MiB`, `500B`.
pub(crate) fn size(text: &str) -> Option<u64> {
    scaled(text, &SIZES)
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Writes a duration in the largest unit that holds it whole.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, factor) = DURATIONS
        .iter()
        .rev()
        .find(|(_, factor)| millis > 0 && millis.is_multiple_of(*factor))
        .unwrap_or(&DURATIONS[1]);
    format!("{}{unit}", millis / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, millis) in [
            ("100ms", 100),
            ("5s", 5_000),
            ("15m", 900_000),
            ("1h", 3_600_000),
            ("0s", 0),
            ("7d", 604_800_000),
            ("2 h", 7_200_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "s", "-1s", "1.5s", "5 sec", "5S", "99999999999999999999d", "1h30m"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(size("256KiB"), Some(262_144));
        assert_eq!(size("1 MiB"), Some(1 << 20));
        assert_eq!(size("2kB"), Some(2_000));
        for bad in ["256", "KiB", "1kib", "-1B", "99999999999GiB"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_are_shown_as_one_would_write_them() {
        for text in ["100ms", "5s", "15m", "1h", "7d", "1500ms", "0s"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
    }
}
