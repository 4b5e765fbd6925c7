import EarshotLoop
import EarshotWire
import Foundation
import Logging
import ZeroMQ

@testable import EarshotWorker
@testable import TestPeers

/// A worker, its broker, an origin and a name server on one loop in one thread.
final class Bed {
    let loop: EventLoop
    let folder: URL
    let origin: LoopbackOrigin
    let worker: Worker<Transfers>
    let nameServer: NameServer?
    private(set) var broker: ScriptedWorkBroker
    private let context: Context
    private var limits: WorkerLimits
    private var flights: UInt64 = 0

    init(
        inlineBytes: Int = 65536, slots: Int = 1000, addressPolicy: String = "", names: NameServer.Answer? = nil,
        script: @escaping (_ requestHead: String) -> LoopbackOrigin.Reply
    ) throws {
        loop = try EventLoop()
        context = try Context.make()
        folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
        for path in [folder, folder.appending(path: "spool")] {
            try FileManager.default.createDirectory(
                at: path, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
        }
        origin = try LoopbackOrigin(loop, script: script)
        limits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: folder.appending(path: "spool").path)
        limits.maximumInlineBodyBytes = inlineBytes
        limits.addressPolicy = addressPolicy
        broker = try Self.broker(loop, context, folder, limits, instance: 1)
        var options = WorkerOptions(workPath: folder.appending(path: "work").path, slots: slots)
        options.secret = "c0ffee"
        if let names {
            let server = try NameServer(names, loop)
            nameServer = server
            options.dnsServers = ["127.0.0.1:\(server.port)"]
        } else {
            nameServer = nil
        }
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        worker = Worker(try Transfers(options, loop: loop, logger: logger))
    }

    deinit {
        broker.end()
        worker.stop()
        try? FileManager.default.removeItem(at: folder)
    }

    /// Names of the files in the spool.
    var spool: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: folder.appending(path: "spool").path)) ?? []
    }

    /// Runs until the condition holds. Returns false after a minute.
    func run(until condition: () -> Bool) throws -> Bool { try loop.run(for: .seconds(60), until: condition) }

    /// Runs until the broker has accepted the worker.
    func meet() throws -> Bool { try run { worker.terms != nil && !broker.readies.isEmpty } }

    /// Returns a new job of the broker for `url`.
    func job(_ url: String? = nil) -> Job {
        flights += 1
        let attempt = AttemptID(broker: broker.instance, flight: flights, attempt: 1)
        return Job(attempt: attempt, url: url ?? origin.url())
    }

    /// Sends the job and runs until it has ended.
    func fetch(_ job: Job, body: [UInt8]? = nil) throws -> Bool {
        guard try meet() else { return false }
        try broker.send(head: PoolMessage.job(job).encoded(), more: body.map { [$0] } ?? [])
        return try run { broker.hasEnded(job.attempt) }
    }

    /// Runs a job and returns its failure code; nil if it succeeds.
    func failure(_ job: Job) throws -> String? {
        try fetch(job) ? broker.failure(job.attempt) : nil
    }

    /// Ends the broker and all its connections.
    func endBroker() throws {
        broker.end()
        // The property is the last reference, so it is replaced with an unreachable broker.
        broker = try Self.broker(loop, context, folder, limits, instance: 0, endpoint: "inproc://nobody")
    }

    /// - Parameter spool: Another folder than before; nil for the same.
    func startBroker(instance: UInt64, answersReady: Bool = true, spool: String? = nil) throws {
        broker.end()
        if let spool { limits.spoolPath = spool }
        broker = try Self.broker(
            loop, context, folder, limits, instance: instance, answersReady: answersReady)
    }

    /// Sends LIMITS again with another address policy.
    func sendLimits(addressPolicy: String) throws {
        limits.addressPolicy = addressPolicy
        try broker.send(.limits(limits))
    }

    /// Runs until the worker has answered a PING, and so has processed all earlier messages.
    func barrier() throws -> Bool {
        let count = broker.count(of: .pong)
        try broker.send(.ping)
        return try run { broker.count(of: .pong) > count }
    }

    private static func endpoint(_ folder: URL) -> String { "ipc://\(folder.path)/work" }

    private static func broker(
        _ loop: EventLoop, _ context: borrowing Context, _ folder: URL, _ limits: WorkerLimits, instance: UInt64,
        endpoint: String? = nil, answersReady: Bool = true
    ) throws -> ScriptedWorkBroker {
        var limits = limits
        limits.broker = BrokerInstance(rawValue: instance)
        return try ScriptedWorkBroker(
            loop, context: context, endpoint: endpoint ?? Self.endpoint(folder), limits: answersReady ? limits : nil,
            instance: instance)
    }
}
