//! State on the host that a run has beside its model, such as what closures and callbacks count: part of its checkpoints.

use crate::{Result, TrainError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// The states of a run by their names, as they are in the manifest of a checkpoint.
pub(crate) type Encoded = BTreeMap<String, Value>;

/// The states of a run in memory, in the order of the trainer's.
pub(crate) type Held = Vec<Box<dyn Any>>;

/// All states of a run.
#[derive(Default)]
pub(crate) struct HostStates(Vec<HostState>);

/// A state of the host by its name.
struct HostState {
    name: String,
    stored: Box<dyn Stored>,
}

/// The two closures of a state, whatever its type.
trait Stored {
    fn encode(&self) -> serde_json::Result<Value>;
    fn decode(&self, value: &Value) -> serde_json::Result<()>;
    fn hold(&self) -> Box<dyn Any>;
    fn put_back(&self, held: Box<dyn Any>);
}

struct Pair<S, F, G> {
    save: F,
    load: G,
    of: PhantomData<fn() -> S>,
}

impl<S: Serialize + DeserializeOwned + 'static, F: Fn() -> S, G: Fn(S)> Stored for Pair<S, F, G> {
    fn encode(&self) -> serde_json::Result<Value> {
        let value = serde_json::to_value((self.save)())?;
        // What JSON cannot hold, such as NaN, is to be known now and not when the run goes on.
        match serde_json::to_value(S::deserialize(&value)?)? == value {
            true => Ok(value),
            false => Err(serde::de::Error::custom("it is not the same when it is read again")),
        }
    }

    fn decode(&self, value: &Value) -> serde_json::Result<()> {
        (self.load)(S::deserialize(value)?);
        Ok(())
    }

    fn hold(&self) -> Box<dyn Any> {
        Box::new((self.save)())
    }

    fn put_back(&self, held: Box<dyn Any>) {
        if let Ok(state) = held.downcast::<S>() {
            (self.load)(*state);
        }
    }
}

impl HostStates {
    /// Adds a state.
    pub(crate) fn add<S: Serialize + DeserializeOwned + 'static>(
        &mut self,
        name: String,
        save: impl Fn() -> S + 'static,
        load: impl Fn(S) + 'static,
    ) {
        let stored = Box::new(Pair {
            save,
            load,
            of: PhantomData,
        });
        self.0.push(HostState { name, stored });
    }

    /// The names of all states; empty if there are none.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|state| &state.name[..]).collect();
        names.join(", ")
    }

    /// Refuses two states of one name.
    pub(crate) fn check(&self) -> Result<()> {
        let names = self.0.iter().map(|state| &state.name);
        for (i, name) in names.clone().enumerate() {
            if names.clone().take(i).any(|before| before == name) {
                let twice = format!("`{name}` twice");
                return Err(TrainError::invalid("host_state", twice, "a name for each state"));
            }
        }
        Ok(())
    }

    /// The states as they are now, for a checkpoint.
    pub(crate) fn encode(&self) -> Result<Encoded> {
        let encoded = self.0.iter().map(|state| {
            let value = state.stored.encode().map_err(|e| failed(&state.name, "saved", &e))?;
            Ok((state.name.clone(), value))
        });
        encoded.collect()
    }

    /// Replaces the states by those of a checkpoint of this run.
    pub(crate) fn decode(&self, encoded: &Encoded) -> Result<()> {
        self.0.iter().try_for_each(|state| {
            let value = encoded.get(&state.name).unwrap_or(&Value::Null);
            state
                .stored
                .decode(value)
                .map_err(|e| failed(&state.name, "loaded", &e))
        })
    }

    /// The states as they are now, for [`put_back`](HostStates::put_back).
    pub(crate) fn hold(&self) -> Held {
        self.0.iter().map(|state| state.stored.hold()).collect()
    }

    /// Replaces the states by those of before.
    pub(crate) fn put_back(&self, held: Held) {
        for (state, held) in self.0.iter().zip(held) {
            state.stored.put_back(held);
        }
    }
}

fn failed(name: &str, what: &'static str, error: &serde_json::Error) -> TrainError {
    TrainError::HostState {
        name: name.to_string(),
        what,
        reason: error.to_string(),
    }
}
