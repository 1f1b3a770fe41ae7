//! Values of the options.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bson::DateTime;

use crate::base::text::meant_number;
use crate::core::policy::duration;

pub(super) fn parse_instant(text: &str) -> Result<DateTime, String> {
    let instant = chrono::DateTime::parse_from_rfc3339(text)
        .map_err(|_| "expected an instant such as 2026-01-31T02:00:00Z, with its offset from UTC".to_owned())?;
    Ok(DateTime::from_millis(instant.timestamp_millis()))
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        0 => Err("expected at least 1s".into()),
        seconds => Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    }
}

pub(super) fn parse_number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number > 0).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| {
        let meant = meant_number(text).filter(|number| *number > 0 && T::try_from(*number).is_ok()).unwrap_or(1000);
        format!("expected a whole number such as {meant}")
    })
}

pub(super) fn parse_last(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 1000".to_owned())
}

pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a number such as 12.5".to_owned())
}

pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let of_port = || text.parse::<u16>().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let address = text.parse().ok().or_else(of_port);
    address.ok_or_else(|| "expected an address such as 127.0.0.1:9216 or [::]:9216, or a port of 127.0.0.1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stands_for_the_machine_itself() {
        let read = |text: &str| parse_address(text).map(|address| address.to_string());
        assert_eq!(read("9216"), Ok("127.0.0.1:9216".to_owned()));
        assert_eq!(read("0.0.0.0:9216"), Ok("0.0.0.0:9216".to_owned()));
        assert_eq!(read("[::1]:9216"), Ok("[::1]:9216".to_owned()));
        for text in [":9216", "localhost", "127.0.0.1", "99999", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_in_another_notation_is_refused_with_the_one_to_write() {
        let refused = |example: u64| Err(format!("expected a whole number such as {example}"));
        assert_eq!(parse_number::<u64>("1000000"), Ok(1_000_000));
        for (text, example) in
            [("1e6", 1_000_000), ("1,000", 1000), ("5k", 5000), ("0", 1000), ("-1", 1000), ("", 1000), ("x", 1000)]
        {
            assert_eq!(parse_number::<u64>(text), refused(example), "{text}");
        }
        assert!(parse_number::<u32>("1e12").is_err());
        assert_eq!((parse_last("1000"), parse_last("0").is_err(), parse_last("1001").is_err()), (Ok(1000), true, true));
        assert_eq!(parse_percent("12.5"), Ok(12.5));
        for text in ["5%", "x", ""] {
            assert_eq!(parse_percent(text), Err("expected a number such as 12.5".to_owned()), "{text}");
        }
    }

    #[test]
    fn instants_need_an_offset() {
        assert_eq!(parse_instant("1970-01-01T01:00:00.5+01:00"), Ok(DateTime::from_millis(500)));
        assert!(parse_instant("2026-01-31").is_err());
        assert!(parse_instant("2026-01-31T02:00:00").is_err());
    }
}
