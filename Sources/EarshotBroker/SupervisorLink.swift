internal import EarshotCore
internal import EarshotLoop
internal import Logging

/// The broker's line to its supervisor, which reads the files of settings and outlives brokers.
///
/// The supervisor says all settings at once: a line for each, and `end`. It is answered by `read`: what was told before
/// that was set before, and is forgotten with it. The broker tells what clients set, as in SET.
final class SupervisorLink {
    private let logger: Logger
    private let onSettings: (Settings) -> Void
    private var channel: LineChannel?
    private var lines: [String] = []
    /// What the supervisor is to hear once it takes something: of two changes with one subject the later one.
    private var unsaid: [SettingChange] = []

    init(
        _ descriptor: Int32, loop: EventLoop, logger: Logger, onSettings: @escaping (Settings) -> Void
    ) throws(SystemError) {
        self.logger = logger
        self.onSettings = onSettings
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

    private func sayRest() {
        guard let channel, !channel.hasBacklog, !unsaid.isEmpty else { return }
        let changes = unsaid
        unsaid = []
        channel.send(changes.map { $0.words.joined(separator: " ") })
    }

    private func take(_ line: String) {
        guard line == Settings.end else {
            lines.append(line)
            return
        }
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
