//! A place in a trace, as W3C writes it: `traceparent` and `tracestate`.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

use crate::model::CallContext;

/// Whether this names a place. What does not is nobody's: it is neither joined nor passed on.
pub fn is_valid(traceparent: &str) -> bool {
    parse(traceparent, None).is_some()
}

/// The place a call's context names.
pub(super) fn read(context: &CallContext) -> Option<SpanContext> {
    parse(context.traceparent.as_deref()?, context.tracestate.as_deref())
}

fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<SpanContext> {
    let mut fields = traceparent.trim().split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let hex = |field: &str, digits: usize| {
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        field.len() == digits && field.bytes().all(lower)
    };
    // Later versions may add fields; version 00 has these four.
    let known = version != "00" || fields.next().is_none();
    if !(known && version != "ff" && hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2)) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = tracestate.and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    Some(SpanContext::new(trace, span, flags, true, state)).filter(SpanContext::is_valid)
}

pub(super) fn traceparent(span: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_place_is_read_and_written_alike() {
        let place = parse(TRACE, Some("vendor=x")).expect("a place");
        assert!(place.is_sampled() && place.is_remote());
        assert_eq!(traceparent(&place), TRACE);
        assert_eq!(place.trace_state().get("vendor"), Some("x"));
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(is_valid(later), "a later version may say more");
    }

    #[test]
    fn what_is_no_place_is_none() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert!(!is_valid(wrong), "{wrong}");
        }
    }
}
