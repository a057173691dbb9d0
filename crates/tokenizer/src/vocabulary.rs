//! Tokens and their numbers.

use crate::{Result, TokenizerError};
use std::collections::HashMap;

/// The tokens of a model, each with its id.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Vocabulary {
    ids: HashMap<String, u32>,
    /// The token of an id; ids may have gaps.
    tokens: Vec<Option<String>>,
}

impl Vocabulary {
    /// The id of a token, which is added if it is new.
    pub(crate) fn add(&mut self, token: &str) -> u32 {
        if let Some(&id) = self.ids.get(token) {
            return id;
        }
        let id = self.tokens.len() as u32;
        self.tokens.push(Some(token.to_string()));
        self.ids.insert(token.to_string(), id);
        id
    }

    /// Adds a token with an id of its own.
    ///
    /// # Errors
    /// An id that another token has, or one so large that the file cannot mean it.
    pub(crate) fn insert(&mut self, token: String, id: u32) -> Result<()> {
        /// Above every vocabulary in use, and small enough for a table.
        const MOST: u32 = 1 << 24;
        if id >= MOST {
            let problem = format!(
                "gives `{token}` the id {id}, beyond the largest supported, {}",
                MOST - 1
            );
            return Err(TokenizerError::invalid("vocabulary", problem));
        }
        let at = id as usize;
        if self.tokens.len() <= at {
            self.tokens.resize(at + 1, None);
        }
        if let Some(other) = self.tokens[at].as_ref().filter(|other| **other != token) {
            let problem = format!("gives the id {id} to `{other}` and to `{token}`");
            return Err(TokenizerError::invalid("vocabulary", problem));
        }
        self.tokens[at] = Some(token.clone());
        self.ids.insert(token, id);
        Ok(())
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub(crate) fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)?.as_deref()
    }

    /// One more than the largest id.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens with their ids, in the order of ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.tokens
            .iter()
            .enumerate()
            .filter_map(|(id, token)| Some((token.as_deref()?, id as u32)))
    }
}
