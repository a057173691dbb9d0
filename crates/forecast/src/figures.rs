//! The figures of the machine code of each kernel: the table that `cargo xtask machine-code --table` writes.

use std::collections::HashMap;

const TABLE: &str = include_str!("../data/kernels.tsv");

/// The instructions that one warp issues on a way through code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// All instructions.
    pub issued: f64,
    /// Products of a warp on tensor cores.
    pub hmma: f64,
    /// Products of a warp group on tensor cores.
    pub wgmma: f64,
    /// Multiply-adds of f32.
    pub ffma: f64,
    /// Other instructions of that pipe.
    pub float: f64,
    /// Special functions.
    pub mufu: f64,
    /// Fragments loaded from shared memory.
    pub ldsm: f64,
    /// Other loads from shared memory.
    pub lds: f64,
    /// Stores to shared memory.
    pub sts: f64,
    /// Copies from global to shared memory.
    pub ldgsts: f64,
    /// Barriers of the block.
    pub barrier: f64,
    /// The sum of stall counts.
    pub stall: f64,
    /// Bytes of global memory that a thread loads.
    pub loaded: f64,
    /// Bytes of global memory that a thread stores.
    pub stored: f64,
}

/// The figures of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory of a block.
    pub shared: u32,
    /// One turn of the main loop; nothing if there is none.
    pub main: Counts,
    /// The way around the main loop.
    pub outside: Counts,
}

/// The columns of [`Counts`], in their order.
pub const COUNTS: [&str; 14] = [
    "issued", "hmma", "wgmma", "ffma", "float", "mufu", "ldsm", "lds", "sts", "ldgsts", "barrier", "stall", "loaded",
    "stored",
];

/// All kernels, by name and architecture.
#[derive(Clone, Debug)]
pub struct Table {
    kernels: HashMap<(String, u32), Figures>,
    compiler: String,
}

impl Table {
    /// The table of Kiln's kernels.
    ///
    /// # Errors
    /// A line that cannot be read, which this crate's tests exclude.
    pub fn known() -> Result<Table, String> {
        Table::parse(TABLE)
    }

    /// A table in the form that `cargo xtask machine-code --table` writes.
    ///
    /// # Errors
    /// The line that cannot be read.
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut table = Table {
            kernels: HashMap::new(),
            compiler: String::new(),
        };
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix('#') {
                if let Some(compiler) = comment.trim().strip_prefix("nvcc ") {
                    table.compiler = compiler.to_string();
                }
                continue;
            }
            let mut fields = line.split('\t');
            let name = fields.next().unwrap_or_default();
            let numbers: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
            let (head, counts) = numbers
                .split_at_checked(3)
                .filter(|(_, counts)| counts.len() == 2 * COUNTS.len())
                .ok_or_else(|| format!("`{line}` in the table of kernels is no kernel"))?;
            let (main, outside) = counts.split_at(COUNTS.len());
            let figures = Figures {
                registers: head[1] as u32,
                shared: head[2] as u32,
                main: of(main),
                outside: of(outside),
            };
            table.kernels.insert((name.to_string(), head[0] as u32), figures);
        }
        Ok(table)
    }

    /// The release of nvcc that the machine code is of.
    pub fn compiler(&self) -> &str {
        &self.compiler
    }

    /// A kernel's figures on an architecture: those of the machine code that runs there, which is of the newest architecture of the table
    /// that is not newer.
    pub fn kernel(&self, name: &str, sm: u32) -> Option<&Figures> {
        let code = if sm >= 90 { 90 } else { 80 };
        self.kernels.get(&(name.to_string(), code))
    }
}

fn of(n: &[f64]) -> Counts {
    Counts {
        issued: n[0],
        hmma: n[1],
        wgmma: n[2],
        ffma: n[3],
        float: n[4],
        mufu: n[5],
        ldsm: n[6],
        lds: n[7],
        sts: n[8],
        ldgsts: n[9],
        barrier: n[10],
        stall: n[11],
        loaded: n[12],
        stored: n[13],
    }
}
