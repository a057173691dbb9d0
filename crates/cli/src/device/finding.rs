//! What `kiln doctor` finds out about a part of the machine.

/// The state of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It works.
    Works,
    /// It is not there; training works without it.
    Lacks,
    /// It is there and does not work.
    Fails,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Works => "ok",
            State::Lacks => "lacks",
            State::Fails => "fails",
        }
    }
}

/// A part of the machine, its state, and what to do about a lack.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) part: String,
    pub(crate) state: State,
    pub(crate) found: String,
    pub(crate) advice: Option<String>,
}

impl Finding {
    fn new(part: &str, state: State, found: impl Into<String>, advice: Option<&str>) -> Self {
        Finding {
            part: part.to_string(),
            state,
            found: found.into(),
            advice: advice.map(str::to_string),
        }
    }

    pub(crate) fn works(part: &str, found: impl Into<String>) -> Self {
        Finding::new(part, State::Works, found, None)
    }

    pub(crate) fn lacks(part: &str, found: impl Into<String>, advice: &str) -> Self {
        Finding::new(part, State::Lacks, found, Some(advice))
    }

    pub(crate) fn fails(part: &str, found: impl Into<String>, advice: &str) -> Self {
        Finding::new(part, State::Fails, found, Some(advice))
    }
}
