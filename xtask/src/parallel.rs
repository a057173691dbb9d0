//! Work on many items, as many at once as there are cores.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Calls `work` on each item on one thread for each core, and `then` with the results on this thread, in the order of the items and as soon
/// as they are there. The first error of `then` is the end: items that were not begun are left out.
pub(crate) fn in_order<T: Sync, R: Send, E>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut then: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (begun, (sender, results)) = (AtomicUsize::new(0), mpsc::channel());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            let (sender, begun, work) = (sender.clone(), &begun, &work);
            scope.spawn(move || {
                loop {
                    let at = begun.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    if sender.send((at, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let (mut waiting, mut next) = (BTreeMap::new(), 0);
        // Returning drops the receiver, and threads that find no one to send to end.
        for (at, result) in results {
            waiting.insert(at, result);
            while let Some(result) = waiting.remove(&next) {
                then(next, result)?;
                next += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let work = |i: &u64| {
            std::thread::sleep(std::time::Duration::from_micros(500 - 10 * i));
            i * i
        };
        let mut found = Vec::new();
        let done = in_order(&items, work, |at, square| {
            found.push((at as u64, square));
            Ok::<(), ()>(())
        });
        assert_eq!(done, Ok(()));
        assert_eq!(found, items.iter().map(|i| (*i, i * i)).collect::<Vec<_>>());
        assert_eq!(in_order(&[], |i: &u64| *i, |_, _| Err(())), Ok(()));
    }

    #[test]
    fn an_error_is_the_end() {
        let mut seen = 0;
        let done = in_order(
            &[0; 1000],
            |_| (),
            |at, ()| {
                seen += 1;
                if at == 3 { Err("here") } else { Ok(()) }
            },
        );
        assert_eq!((done, seen), (Err("here"), 4));
    }
}
