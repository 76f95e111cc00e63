//! Numbers and bars as they stand on the screen, in few columns.

/// Three or four digits and a unit: `950`, `12.3k`, `1.20M`.
pub(super) fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T"])
}

/// The same of bytes: `950 B`, `12.3 KiB`.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    // What would be rounded up to a whole step belongs to the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", units[unit])
}

/// Days, hours, minutes and seconds.
pub(super) fn age(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days == 0 { clock } else { format!("{days}d {clock}") }
}

/// Microseconds: `0.8 us`, `12 us`, `3.4 ms`.
pub(super) fn duration(us: f64) -> String {
    match us {
        us if us < 9.95 => format!("{us:.1} us"),
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// A bar of `width` columns, filled to `share` in eighths of a column.
pub(super) fn bar(share: f64, width: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(PARTS[eighths % 8]);
    }
    text.extend(std::iter::repeat_n(' ', width - eighths.div_ceil(8)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (999_499.0, "999k"),
            (999_999.0, "1.00M"),
            (1.2e15, "1200T"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!([0.0, 1024.0, 5e6, 2e14].map(bytes), ["0 B", "1.00 KiB", "4.77 MiB", "182 TiB"]);
        assert_eq!([59, 3600, 93_784].map(age), ["0:00:59", "1:00:00", "1d 2:03:04"]);
        assert_eq!(
            [0.25, 12.0, 3400.0, 25e3, 2e6].map(duration),
            ["0.2 us", "12 us", "3.4 ms", "25 ms", "2.0 s"]
        );
    }

    #[test]
    fn bars_have_their_width() {
        for eighths in 0..=32 {
            let drawn = bar(f64::from(eighths) / 32.0, 4);
            assert_eq!(drawn.chars().count(), 4, "{drawn:?}");
        }
        assert_eq!([bar(0.5, 3), bar(-1.0, 2), bar(7.0, 2)], ["█▌ ", "  ", "██"]);
    }
}
