//! Reads the kernels of an image from the PTX inside it.

/// A `__global__` function as its PTX declares it.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Bytes of each parameter.
    pub(crate) params: Vec<u32>,
    /// The most threads of a block (`__launch_bounds__`), if the PTX says so.
    pub(crate) max_threads: Option<u32>,
}

/// The entries of the first PTX in `image`, in their order.
pub(crate) fn read(image: &[u8]) -> Result<Vec<Entry>, String> {
    let text = ptx(image).ok_or("no PTX in the image")?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(".visible .entry ") {
        rest = &rest[at + ".visible .entry ".len()..];
        let open = rest.find('(').ok_or("an entry without parameters")?;
        let close = rest
            .find("\n)")
            .or_else(|| rest.find(')'))
            .ok_or("an entry that does not end")?;
        let name = rest[..open].trim().to_string();
        let declared = rest.get(open + 1..close).unwrap_or("");
        let params = declared
            .split(",\n")
            .filter(|p| p.contains(".param"))
            .map(|p| size(p).ok_or_else(|| format!("{name}: cannot read the parameter `{}`", p.trim())))
            .collect::<Result<_, _>>()?;
        let body = rest.find("\n{").ok_or("an entry without a body")?;
        let max_threads = rest[close..body].split(".maxntid").nth(1).map(|list| {
            let numbers = list.split_whitespace().map(|n| n.trim_end_matches(','));
            numbers.map_while(|n| n.parse::<u32>().ok()).product()
        });
        rest = &rest[body..];
        entries.push(Entry {
            name,
            params,
            max_threads,
        });
    }
    Ok(entries)
}

/// The text of the first PTX: from its version to the zero that ends it. Machine code with line information has the PTX that it was made
/// of with a zero after each line: that is not read.
fn ptx(image: &[u8]) -> Option<&str> {
    const VERSION: &[u8] = b".version ";
    let starts = image.windows(VERSION.len()).enumerate().filter(|(_, w)| *w == VERSION);
    let texts = starts.filter_map(|(start, _)| image[start..].split(|&b| b == 0).next());
    texts
        .filter(|text| text.contains(&b'\n'))
        .find_map(|text| std::str::from_utf8(text).ok())
}

/// Bytes of `.param .align 8 .b8 name[32]` or `.param .u64 name`.
fn size(param: &str) -> Option<u32> {
    let kind = param
        .split_whitespace()
        .find(|w| w.len() > 2 && w.starts_with(['.']) && w[2..].chars().all(|c| c.is_ascii_digit()))?;
    let one = kind[2..].parse::<u32>().ok()? / 8;
    match param.split_once('[') {
        Some((_, count)) => Some(one * count.trim_end().trim_end_matches(']').parse::<u32>().ok()?),
        None => Some(one),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn kernels_are_read_from_the_ptx_and_not_from_the_copy_of_it_in_machine_code() {
        let text =
            ".version 9.0\n.target sm_80\n.visible .entry f(\n.param .u64 a,\n.param .u32 b\n)\n.maxntid 256\n{\n}\n\0";
        let copied = text.replace('\n', "\0");
        let image = [b"\x7fELF", copied.as_bytes(), b"\xff\0", text.as_bytes()].concat();
        let entries = read(&image).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (&*entries[0].name, &*entries[0].params, entries[0].max_threads),
            ("f", &[8, 4][..], Some(256))
        );
        assert!(read(copied.as_bytes()).is_err());
    }
}
