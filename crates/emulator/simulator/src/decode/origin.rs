//! The source lines of instructions, as `.loc` gives them.

use std::collections::HashMap;

use kiln_ptx::Place;

use crate::machine::Origin;

/// Follows the `.loc` directives of one function.
#[derive(Debug)]
pub(super) struct Origins {
    /// The numbers of the files that came with the toolkit.
    headers: Vec<u32>,
    /// For each inlined place, the call given for it last.
    calls: HashMap<Place, Place>,
}

impl Origins {
    pub(super) fn new(files: &[(u32, String)]) -> Origins {
        let headers = files.iter().filter(|(_, name)| is_toolkit_header(name));
        Origins {
            headers: headers.map(|(number, _)| *number).collect(),
            calls: HashMap::new(),
        }
    }

    /// The origin of the instructions after a `.loc`. A line of a toolkit's header is traced to the call outside of the
    /// headers: nvcc writes a `.loc` for every level of inlining, the outermost first.
    pub(super) fn at(&mut self, place: Place, inlined_at: Option<Place>) -> Origin {
        match inlined_at {
            Some(call) => self.calls.insert(place, call),
            None => self.calls.remove(&place),
        };
        let mut outside = place;
        // A chain is no longer than the calls are deep; this bound also ends one that returns to itself.
        for _ in 0..self.calls.len() {
            match self.calls.get(&outside) {
                Some(call) if self.headers.contains(&outside.file) => outside = *call,
                _ => break,
            }
        }
        if self.headers.contains(&outside.file) {
            return Origin { place, header: None };
        }
        Origin {
            place: outside,
            header: (outside != place).then_some(place),
        }
    }
}

/// True if a path is that of a header of a CUDA toolkit: it lies under an `include` folder of one, wherever that was
/// installed.
fn is_toolkit_header(path: &str) -> bool {
    let Some((root, _)) = path.rsplit_once("/include/") else {
        return false;
    };
    let toolkit = |part: &str| {
        let version = part.strip_prefix("cuda").or_else(|| part.strip_prefix("cu"));
        part == "nvidia" || version.is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || "-.".contains(c)))
    };
    root == "/usr" || root.contains("/bin/..") || root.contains("/targets/") || root.split('/').any(toolkit)
}

#[cfg(test)]
mod tests {
    use super::{Origins, is_toolkit_header};
    use kiln_ptx::Place;

    #[test]
    fn headers_of_a_toolkit_are_known_by_their_folder() {
        for path in [
            "/usr/local/cuda-13.0/bin/..//include/sm_30_intrinsics.hpp",
            "/usr/local/cuda/include/cuda_fp16.hpp",
            "/usr/include/cuda_fp16.hpp",
            "/opt/conda/targets/x86_64-linux/include/cub/block/block_reduce.cuh",
            "/home/me/.venv/lib/python3.12/site-packages/nvidia/cu13/include/cooperative_groups.h",
        ] {
            assert!(is_toolkit_header(path), "{path}");
        }
        for path in [
            "/home/me/cuda-fun/include/softmax.cuh",
            "softmax.cu",
            "/home/me/cute/include/a.cuh",
            "",
        ] {
            assert!(!is_toolkit_header(path), "{path}");
        }
    }

    #[test]
    fn a_chain_of_calls_leads_out_of_the_headers() {
        let place = |file, line| Place { file, line, column: 1 };
        let files = [
            (1, "mine.cu"),
            (2, "/usr/local/cuda/include/a.h"),
            (3, "/usr/local/cuda/include/b.h"),
        ];
        let mut origins = Origins::new(&files.map(|(n, name)| (n, name.to_string())));
        let at = |origins: &mut Origins, p, call| {
            let origin = origins.at(p, call);
            (origin.place, origin.header)
        };
        assert_eq!(at(&mut origins, place(1, 9), None), (place(1, 9), None));
        assert_eq!(
            at(&mut origins, place(2, 5), Some(place(1, 9))),
            (place(1, 9), Some(place(2, 5)))
        );
        assert_eq!(
            at(&mut origins, place(3, 7), Some(place(2, 5))),
            (place(1, 9), Some(place(3, 7)))
        );
        // The same header again, called from elsewhere.
        assert_eq!(
            at(&mut origins, place(2, 5), Some(place(1, 30))),
            (place(1, 30), Some(place(2, 5)))
        );
        assert_eq!(
            at(&mut origins, place(3, 7), Some(place(2, 5))),
            (place(1, 30), Some(place(3, 7)))
        );
        // A function of the program's own that was inlined keeps its own line.
        assert_eq!(at(&mut origins, place(1, 3), Some(place(1, 9))), (place(1, 3), None));
        // Without the call there is only the header, and a circle ends.
        assert_eq!(at(&mut origins, place(2, 1), None), (place(2, 1), None));
        assert_eq!(at(&mut origins, place(2, 8), Some(place(2, 8))), (place(2, 8), None));
    }
}
