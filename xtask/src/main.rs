//! Postroom's automation, run as `cargo xtask`.

mod bench;
mod chaos;
mod packages;
mod phase;
mod soak;
mod suites;
mod tally;
mod test;
mod tree;

use std::process::ExitCode;
use test::Databases;

const USAGE: &str = "\
usage: cargo xtask test [--only FILTER | --databases all]
       cargo xtask bench relay|latency|layouts|sinks|bullmq|eventlog [FIGURE] [--smoke]
       cargo xtask chaos [--messages N] [--faults N] [--seed S|random]
                         [--database postgres|mariadb|galera|sqlite]
       cargo xtask soak bullmq [--messages N] [--bullmq 5|6]
       cargo xtask soak store [--seed S]
       cargo xtask soak eventlog [--seed S]

  test    installs what is missing, starts a private PostgreSQL, runs formatting, lints, every
          test, the examples and every benchmark at its smallest size, and stops what it started
          --only FILTER     only the Rust tests whose name contains FILTER
          --databases all   the store contract on PostgreSQL 16 and 17, and every layout on MySQL 8,
                            as well
  bench   measures on a private, durable PostgreSQL: one JSON object per figure on standard
          output, a table on standard error; docs/benchmarks.md says how to read them
          --smoke   seconds, from a development build: only that the benchmark still works
  chaos   produces messages, delivers them with several relays, strikes with faults by seed, and
          compares the books: 100000 messages and 50 faults unless told otherwise; one JSON object
          on standard output; docs/testing.md says how to read it
  soak    20000 messages from PostgreSQL through BullMQ to a worker in Rust and one in Node, while
          Redis is restarted empty and each worker is killed once; one JSON object on standard
          output. store: the stress run of the ledger, four times 75 s from this seed on.
          eventlog: eight writers append to an event log whose server is killed 50 times
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["test"] => test::run(None, Databases::Usual),
        ["test", "--only", filter] => test::run(Some(filter), Databases::Usual),
        ["test", "--databases", "all"] => test::run(None, Databases::All),
        ["bench", name, ref options @ ..] if bench::NAMES.contains(&name) => {
            bench::run(name, options)
        }
        ["chaos", ref arguments @ ..] => chaos::run(arguments),
        ["soak", "bullmq", ref arguments @ ..] => soak::run(arguments),
        ["soak", "store"] => soak::store(1),
        ["soak", "store", "--seed", seed] => match seed.parse() {
            Ok(seed) => soak::store(seed),
            Err(error) => Err(anyhow::anyhow!("--seed takes a number: {error}")),
        },
        ["soak", "eventlog"] => soak::eventlog(None),
        ["soak", "eventlog", "--seed", seed] => soak::eventlog(Some(seed)),
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
