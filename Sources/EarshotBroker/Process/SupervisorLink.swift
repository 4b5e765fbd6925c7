internal import EarshotCore
internal import EarshotLoop
internal import Logging

/// The broker's line to its supervisor, which reads the files of settings and outlives brokers.
///
/// The supervisor says all settings at once: a line for each, and `end`. It is answered by `read`: what was told before
/// that was set before, and is forgotten with it. The broker tells what clients set, as in SET, and how many workers it
/// has taken in.
///
/// The supervisor says of all children that fail at once: a line for each, and `failing`. Asked `alive`, the broker
/// says the same.
final class SupervisorLink {
    private let logger: Logger
    private let onSettings: (Settings) -> Void
    private let onFailures: ([ChildFailure]) -> Void
    private var channel: LineChannel?
    private var lines: [String] = []
    /// What the supervisor is to hear once it takes something: of two changes with one subject the later one.
    private var unsaid: [SettingChange] = []
    /// Workers taken in, of which it is to hear; nil if it has.
    private var unsaidWorkers: Int?
    private var workers = 0

    init(
        _ descriptor: Int32, loop: EventLoop, logger: Logger, onSettings: @escaping (Settings) -> Void,
        onFailures: @escaping ([ChildFailure]) -> Void
    ) throws(SystemError) {
        self.logger = logger
        self.onSettings = onSettings
        self.onFailures = onFailures
        let channel = try LineChannel(descriptor, loop: loop) { [unowned self] line in take(line) }
        channel.onRoom = { [unowned self] in sayRest() }
        self.channel = channel
    }

    /// Says that a client has set something. Kept while the supervisor takes nothing.
    func tell(_ change: SettingChange) {
        unsaid.removeAll { $0.subject == change.subject }
        unsaid.append(change)
        sayRest()
    }

    /// Says how many workers are taken in, if it is another number than before.
    func tell(workersTakenIn count: Int) {
        guard count != workers else { return }
        workers = count
        unsaidWorkers = count
        sayRest()
    }

    private func sayRest() {
        guard let channel, !channel.hasBacklog else { return }
        var lines = unsaid.map { $0.words.joined(separator: " ") }
        unsaid = []
        if let count = unsaidWorkers { lines.append("\(SupervisorWord.workers) \(count)") }
        unsaidWorkers = nil
        if !lines.isEmpty { channel.send(lines) }
    }

    private func take(_ line: String) {
        switch line {
        case SupervisorWord.alive: if let channel, !channel.hasBacklog { channel.send([SupervisorWord.alive]) }
        case ChildFailure.end:
            onFailures(lines.compactMap { ChildFailure(line: $0) })
            lines = []
        case Settings.end: takeSettings()
        default: lines.append(line)
        }
    }

    private func takeSettings() {
        do throws(SettingError) {
            let settings = try Settings(lines: lines)
            unsaid = []
            onSettings(settings)
            channel?.send([Settings.taken])
        } catch {
            // The supervisor is of the same build.
            logger.error("the supervisor's settings cannot be read: \(error)")
        }
        lines = []
    }
}
