internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot-lab readers`: many subscribers of one handler in one process, so that the readers cost little compared with
/// the bus.
struct ReadersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "readers", abstract: "Receive results of a handler over many connections, and measure the delays.",
        discussion: """
            Prints `ready` when all have subscribed. When its standard input ends it requests URL?0, URL?1, … at an even \
            pace and ends when each connection has all results, or without --url at once. Then it prints a line of JSON: \
            requests sent, terminals received and missing, and percentiles of the microseconds between the two.
            """)

    @Argument(help: "Connections.")
    var connections: Int

    @Argument(help: "The handler.")
    var handler: String

    @Option(help: "The broker's runtime folder.")
    var runtime: String?

    @Option(help: "Terminals that a connection may have unacknowledged.")
    var window = 256

    @Option(help: "URL to request.")
    var url: String?

    @Option(help: "Requests a second.")
    var rate = 100

    @Option(help: "Requests.")
    var count = 1_000

    func run() throws {
        SignalSource.ignoreWriteSignals()
        guard let pattern = HandlerPattern(handler), let handler = HandlerID(handler), connections > 0, rate > 0 else {
            throw ValidationError("a handler and numbers above 0 are needed")
        }
        let loop = try EventLoop()
        let readers = try ReaderConnections(
            connections, of: handler, by: pattern, window: window, RuntimeFolder(named: runtime), loop: loop)
        try loop.run { readers.areAllReady }
        _ = Output(STDOUT_FILENO).write(Array("ready\n".utf8))
        let input = try loop.add(STDIN_FILENO, .readable) { _ in loop.stop() }
        try loop.run()
        loop.remove(input)
        if let url {
            readers.sendRequests(for: url, rate: rate, count: count)
            try loop.run(for: .seconds(count / rate + 60)) { readers.hasReceivedAll }
        }
        print(readers.report)
    }
}

/// Connections that all subscribe to one handler.
private final class ReaderConnections {
    private let loop: EventLoop
    private let handler: HandlerID
    private var connections: [ClientConnection] = []
    private var readyCount = 0
    /// Number of requests to send; 0 if another process sends them.
    private var requestCount = 0
    private var sentRequestCount = 0
    /// Delay of each terminal in microseconds.
    private var delaysMicroseconds: [Int64] = []

    init(
        _ count: Int, of handler: HandlerID, by pattern: HandlerPattern, window: Int, _ folder: RuntimeFolder,
        loop: EventLoop
    ) throws {
        self.loop = loop
        self.handler = handler
        for _ in 0..<count {
            let connection = try ClientConnection(
                endpoint: folder.busEndpoint, window: window, loop: loop
            ) { [unowned self] in handle($0) }
            connection.subscribe(pattern)
            // The reply follows the execution of the subscription.
            connection.query(.ping)
            connections.append(connection)
        }
    }

    var areAllReady: Bool { readyCount == connections.count }

    var hasReceivedAll: Bool { missingDeliveries == 0 }

    private var missingDeliveries: Int { max(0, requestCount * connections.count - delaysMicroseconds.count) }

    /// Results as one line of JSON.
    var report: String {
        let sorted = delaysMicroseconds.sorted()
        let figures = [50, 99, 100].map { share in
            let value = sorted.isEmpty ? 0 : sorted[max(0, (sorted.count * share + 99) / 100 - 1)]
            return "\"p\(share)\": \(value)"
        }
        let counts = [
            "\"sent\": \(sentRequestCount)", "\"received\": \(delaysMicroseconds.count)",
            "\"missing\": \(missingDeliveries)",
        ]
        return "{\((counts + figures).joined(separator: ", "))}"
    }

    func sendRequests(for url: String, rate: Int, count: Int) {
        self.requestCount = count
        sendRequest(for: url, every: .seconds(1) / rate, at: loop.now)
    }

    /// The ID of each request is its planned time, so that delays of this process count as well.
    private func sendRequest(for url: String, every pace: Duration, at due: LoopTime) {
        guard sentRequestCount < requestCount, let request = RequestID("\(due.nanoseconds)") else { return }
        var fetch = Fetch(handler: handler, request: request, url: "\(url)?\(sentRequestCount)")
        fetch.options.subscribes = false
        sentRequestCount += 1
        do {
            try connections[0].fetch(fetch)
        } catch {
            print("not sent: \(error)")
        }
        let next = due.advanced(by: pace)
        loop.setTimer(at: next) { [unowned self] in sendRequest(for: url, every: pace, at: next) }
    }

    private func handle(_ event: ClientEvent) {
        switch event {
        case .queryAnswer: readyCount += 1
        case .terminal(let delivery, _):
            guard case .result = delivery.terminal.outcome, let due = Int64(delivery.key.request.description) else {
                return
            }
            delaysMicroseconds.append((LoopTime.readClock().nanoseconds - due) / 1_000)
        case .accepted, .progress, .cancelled, .removed, .settingChanged, .messageRefused, .state: break
        }
    }
}
