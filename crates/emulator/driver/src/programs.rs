//! Programs that were read before: each context loads the same images, and reading megabytes of PTX takes longer than most kernels.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use kiln_simulator::{LoadError, Program};

/// The number of programs that are kept, the last ones to be read.
const KEPT: usize = 64;

/// The programs that are kept. A program has no state: its variables have memory of their own in every module.
#[derive(Default)]
pub(crate) struct Programs(Mutex<VecDeque<Arc<Program>>>);

impl Programs {
    /// The program of a PTX text.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub(crate) fn load(&self, ptx: &str) -> Result<Arc<Program>, LoadError> {
        if let Some(known) = self.kept().iter().find(|program| program.ptx() == ptx) {
            return Ok(Arc::clone(known));
        }
        let program = Arc::new(Program::load(ptx)?);
        let mut kept = self.kept();
        kept.truncate(KEPT - 1);
        kept.push_front(Arc::clone(&program));
        Ok(program)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Program>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptx(name: &str) -> String {
        format!(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry {name}()\n{{\n ret;\n}}\n")
    }

    #[test]
    fn a_text_is_read_once_while_it_is_kept() {
        let programs = Programs::default();
        let first = programs.load(&ptx("a")).unwrap();
        assert!(Arc::ptr_eq(&first, &programs.load(&ptx("a")).unwrap()));
        for n in 0..KEPT {
            let other = programs.load(&ptx(&format!("k{n}"))).unwrap();
            assert_eq!(other.kernels(), [format!("k{n}")]);
        }
        let again = programs.load(&ptx("a")).unwrap();
        assert!(!Arc::ptr_eq(&first, &again) && again.kernels() == first.kernels());
        assert!(programs.load("no PTX").is_err());
    }
}
