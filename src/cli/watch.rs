//! `ibscope watch`: the traffic of a growing capture, live, and its profile at the end.

use super::common::arguments::InputArgs;
use super::common::choices::Color;
use super::common::parse::{bin_ns, percent, positive, sampling_rate, threads};
use super::common::{input, output};
use super::metrics::MetricsOutput;
use crate::analysis::live::{LiveProgress, LiveRows};
use crate::model::{LiveSums, Profile};
use crate::pipeline::{self, EndCondition, SflowListener, WatchedInput};
use crate::render::live::{self, ScreenView};
use crate::render::metrics::LiveMetrics;
use crate::render::text;
use crate::scratch::signals;
use anyhow::anyhow;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::backend::Backend as _;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope watch sink.pcap
  ibscope watch sink.pcap --interval 5s -o job.ibp
  ibscope watch --sflow 0.0.0.0:6343 --metrics 127.0.0.1:9420";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct WatchArgs {
    /// Growing capture, folder of a rotating capture, or FIFO; `-` for standard input
    #[arg(value_name = "FILE|FIFO|DIR", required_unless_present = "sflow")]
    pub(super) place: Option<PathBuf>,
    /// Receive the samples of sFlow agents (version 5, raw packet headers) on this UDP socket
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["place", "once"])]
    pub(super) sflow: Option<SocketAddr>,
    /// Update the screen, or print a line, every DURATION
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = bin_ns)]
    pub(super) interval: i64,
    /// Read the current content (a FIFO until its writer closes it), and print the totals only
    #[arg(long)]
    pub(super) once: bool,
    /// Print lines instead of a screen
    #[arg(long, conflicts_with = "once")]
    pub(super) lines: bool,
    /// Write the profile at the end to this folder, usually NAME.ibp; replaces an existing profile
    #[arg(short, long, value_name = "PROFILE")]
    pub(super) output: Option<PathBuf>,
    /// Serve counters at http://ADDRESS:PORT/metrics, for Prometheus (OpenMetrics)
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub(super) metrics: Option<SocketAddr>,
    /// Write counters to FILE at each update, for the text file collector of node_exporter; at the end
    /// also those of classes and jobs
    #[arg(long, value_name = "FILE")]
    pub(super) textfile: Option<PathBuf>,
    /// Width of the bins of the profile
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = bin_ns)]
    pub(super) bin: i64,
    /// Use N worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(super) threads: usize,
    /// Read names of endpoints: csv `endpoint,name`, for example `17,node1`
    #[arg(long, value_name = "FILE")]
    pub(super) hosts: Option<PathBuf>,
    /// Read all ranks from FILE instead of from the messages: csv `rank,endpoint[,qpn]`
    #[arg(long, value_name = "FILE")]
    pub(super) rankmap: Option<PathBuf>,
    /// Read the manifest of a captured run: names of endpoints
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Exit with code 3 if less than PERCENT % of the records could be decoded; known frames other
    /// than InfiniBand count as decoded
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(super) min_coverage: f64,
    /// Track at most N directed connections; count the packets of others in the totals only
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CONNECTIONS, value_parser = positive)]
    pub(super) max_connections: usize,
    /// Estimate totals from a sample: the mirror passed one of N packets of each port, at random
    #[arg(long, value_name = "1/N", value_parser = sampling_rate)]
    pub(super) sampled: Option<u32>,
    /// When to color the output
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

impl WatchArgs {
    /// The reading options, for one input as a whole.
    pub(super) fn reading(&self) -> InputArgs {
        InputArgs {
            threads: self.threads,
            hosts: self.hosts.clone(),
            rankmap: self.rankmap.clone(),
            manifest: self.manifest.clone(),
            min_coverage: self.min_coverage,
            max_connections: self.max_connections,
            max_decompressed: None,
            from: None,
            to: None,
            no_align: true,
            streams: None,
            sampled: self.sampled,
        }
    }
}

/// Longest time until a key is handled, and until the screen is redrawn without new packets.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Runs `ibscope watch`.
pub(super) fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let reading = args.reading();
    let inputs: Vec<PathBuf> = args.place.iter().cloned().collect();
    if let Some(place) = inputs.iter().find(|place| pipeline::is_profile(place)) {
        return Err(anyhow!("{}: is a profile, which does not grow; use `ibscope summary`", place.display()));
    }
    let mut options = input::options(&inputs, &reading)?;
    // The same options as in `analyze`, so that both commands give the same totals.
    options.bin_ns = Some(args.bin);
    let files = input::files(&inputs, &reading);
    let (watched_input, name) = open_input(args)?;
    let writer = args.output.as_deref().map(|place| pipeline::ProfileWriter::create(place, &files)).transpose()?;
    let end_condition = EndCondition { until_now: args.once, stop: Arc::clone(&signals::stop()?.flag) };
    let interval = Duration::from_nanos(args.interval.unsigned_abs());
    let metrics = MetricsOutput::start(args.metrics, args.textfile.as_ref(), &files)?;
    let (send, updates) = mpsc::channel();
    let mut watched = WatchView {
        args,
        name,
        interval,
        end_condition: &end_condition,
        updates,
        metrics: (metrics, LiveMetrics::default()),
        progress: LiveProgress::new(options.endpoints.names.clone(), args.sampled),
        last_update: None,
        view: ScreenView { color: output::style(args.color).color, ..ScreenView::default() },
        paused: None,
    };
    let profile = std::thread::scope(|scope| {
        let work = || {
            // The receiver is gone once the user has quit.
            let show = |sums| drop(send.send(sums));
            let result = pipeline::watch(watched_input, &options, &end_condition, interval, &show);
            drop(send);
            result
        };
        let worker = std::thread::Builder::new().spawn_scoped(scope, work).map_err(pipeline::PipelineError::Threads)?;
        let shown = watched.show();
        // The worker must end even if the screen or standard output failed.
        end_condition.stop.store(true, Ordering::Relaxed);
        let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        shown?;
        anyhow::Ok(result?)
    })?;
    if let Some(profile) = &profile {
        watched.publish_end(profile)?;
    }
    let Some(profile) = profile else {
        output::eprint_line("ibscope: ended before the first packet arrived");
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(writer) = writer {
        writer.finish(&profile)?;
    }
    finish(args, &profile)
}

/// The input, and its name on the screen. A socket receives from here on.
fn open_input(args: &WatchArgs) -> anyhow::Result<(WatchedInput, String)> {
    if let Some(address) = args.sflow {
        let listener = SflowListener::bind(address).map_err(pipeline::PipelineError::from)?;
        output::eprint_line(&format!("ibscope: receiving sFlow on {}", listener.address()));
        let name = listener.name();
        return Ok((WatchedInput::Sflow(listener), name));
    }
    let place = args.place.clone().unwrap_or_default();
    let name = place.display().to_string();
    Ok((WatchedInput::Place(place), name))
}

fn finish(args: &WatchArgs, profile: &Profile) -> anyhow::Result<ExitCode> {
    let style = output::style(args.color);
    output::results(|out| out.write_all(text::summary(profile, &style).as_bytes()))?;
    if let Some(place) = &args.output {
        output::eprint_line(&format!("profile written to {}", place.display()));
    }
    let reading = args.reading();
    input::table_notes(&reading, profile);
    Ok(input::exit_code(&reading, &profile.coverage))
}

/// The user interface: shows updates and handles keys.
struct WatchView<'a> {
    args: &'a WatchArgs,
    /// The name of the input.
    name: String,
    interval: Duration,
    end_condition: &'a EndCondition,
    updates: Receiver<LiveSums>,
    metrics: (MetricsOutput, LiveMetrics),
    progress: LiveProgress,
    /// Time of the last update.
    last_update: Option<Instant>,
    /// Rows and order of the table.
    view: ScreenView,
    /// The progress that the screen shows while the user has paused it.
    paused: Option<LiveProgress>,
}

impl WatchView<'_> {
    /// Shows updates until the worker ends.
    fn show(&mut self) -> anyhow::Result<()> {
        let has_screen = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if self.args.once {
            // Until the worker drops its sender.
            while let Ok(sums) = self.updates.recv() {
                self.update(sums)?;
            }
            return Ok(());
        }
        if self.args.lines || !has_screen {
            return self.lines();
        }
        // `try_init` also restores the terminal after a panic.
        let mut terminal = ratatui::try_init()?;
        let shown = self.screen(&mut terminal);
        ratatui::restore();
        shown
    }

    fn lines(&mut self) -> anyhow::Result<()> {
        let mut has_header = false;
        while let Ok(sums) = self.updates.recv() {
            self.update(sums)?;
            output::results(|out| {
                if !has_header {
                    writeln!(out, "{}", live::header())?;
                }
                writeln!(out, "{}", live::line(&self.progress))
            })?;
            has_header = true;
        }
        if has_header {
            output::results(|out| writeln!(out))?;
        }
        Ok(())
    }

    fn screen(&mut self, terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
        let keys = terminal_events()?;
        loop {
            let state = match (self.end_condition.is_over(), self.last_update.is_none()) {
                (true, _) => "ending",
                (false, _) if self.paused.is_some() => "paused",
                (false, true) => "waiting for packets",
                (false, false) => "following",
            };
            let shown = self.paused.as_ref().unwrap_or(&self.progress);
            terminal.draw(|frame| live::draw(frame, shown, (&self.name, state), self.interval, self.view))?;
            loop {
                match self.updates.recv_timeout(KEY_WAIT) {
                    Ok(sums) => {
                        self.update(sums)?;
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                if self.handle(&keys) {
                    // Draws all cells again: other programs may have written onto the screen.
                    // `Terminal::clear` asks the terminal for its cursor, and not all of them reply.
                    terminal.backend_mut().clear()?;
                    terminal.swap_buffers();
                    break;
                }
            }
        }
    }

    /// Takes new sums. The first arrive one interval after the first packet, however late it is.
    fn update(&mut self, sums: LiveSums) -> anyhow::Result<()> {
        let now = Instant::now();
        self.progress.update(sums, self.last_update.map_or(self.interval, |before| now - before));
        self.last_update = Some(now);
        let (output, metrics) = &mut self.metrics;
        if output.is_used() {
            output.publish(metrics.update(&self.progress)?)?;
        }
        Ok(())
    }

    /// Publishes the counters of the profile.
    fn publish_end(&mut self, profile: &Profile) -> anyhow::Result<()> {
        let (output, metrics) = &mut self.metrics;
        if output.is_used() {
            output.publish(metrics.finish(&self.progress, profile)?)?;
        }
        Ok(())
    }

    /// Handles pending events without waiting; true if the screen must be redrawn.
    fn handle(&mut self, events: &Receiver<Event>) -> bool {
        events.try_iter().fold(false, |draws, event| {
            let is_new = match event {
                Event::Resize(..) => true,
                Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
                _ => false,
            };
            draws || is_new
        })
    }

    /// Handles a key; true if it has a meaning.
    fn key(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => self.end_condition.stop.store(true, Ordering::Relaxed),
            KeyCode::Char('q') | KeyCode::Esc => self.end_condition.stop.store(true, Ordering::Relaxed),
            KeyCode::Char('s') => self.view.order = self.view.order.next(),
            KeyCode::Char('l') => {
                self.view.rows = match self.view.rows {
                    LiveRows::Pairs => LiveRows::Links,
                    LiveRows::Links => LiveRows::Pairs,
                };
            }
            // Counting goes on.
            KeyCode::Char('p') => {
                self.paused = if self.paused.is_some() { None } else { Some(self.progress.clone()) };
            }
            _ => return false,
        }
        true
    }
}

/// The keys and changes of size from here on. A thread of their own reads them: once a terminal is
/// closed, `crossterm` reads its end forever, and `watch` must end.
fn terminal_events() -> io::Result<Receiver<Event>> {
    let (send, events) = mpsc::channel();
    let read = move || while event::read().is_ok_and(|event| send.send(event).is_ok()) {};
    std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(events)
}
