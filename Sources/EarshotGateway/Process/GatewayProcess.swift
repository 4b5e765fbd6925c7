internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
public import Logging
internal import ZeroMQ

/// A gateway process: signals, limits and privileges around a `Gateway`.
public final class GatewayProcess {
    /// Maximum address space in bytes: several times the bounds of all connections. It contains faults of libzmq.
    private static let maximumAddressSpaceBytes = 4 << 30
    /// Number of principals in a line: with the longest ones it has less than `LineChannel.maximumLineBytes`.
    private static let principalsPerLine = 200

    private let options: GatewayOptions
    private let logger: Logger

    public init(options: GatewayOptions, logger: Logger) {
        self.options = options
        self.logger = logger
    }

    /// Runs until SIGTERM or SIGINT. SIGHUP reads the keys again.
    ///
    /// Changes the signals, limits and privileges of this process permanently. Must be called on the main thread before
    /// other threads start.
    ///
    /// - Returns: The exit code, 0.
    /// - Throws: `GatewayError` if libzmq is missing or an address cannot be used; the error of `readKeys`.
    public func run() throws -> Int32 {
        SignalSource.ignoreWriteSignals()
        ProcessName.setThreadName("earshot-gateway")
        try ParentProcess.forbidNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        if let parent = options.parentPid, try !ParentProcess.setParentDeathSignal(parentPid: parent, signal: SIGKILL) {
            logger.notice("the parent process has ended")
            return 0
        }
        try ResourceLimits.limitMemory(of: getpid(), bytes: Self.maximumAddressSpaceBytes)
        // In the sandbox no limit can be changed.
        try ResourceLimits.raiseDescriptorLimit()
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let loop = try EventLoop()
        // Loads libzmq, whose files the sandbox would hide.
        let keys = try options.readKeys()
        let listeners = try openListeners(on: loop)
        enterSandbox()
        let gateway: Gateway
        do {
            gateway = try Gateway(
                keys, listeners, busPath: options.busPath, workPath: options.workPath, loop: loop, logger: logger)
        } catch let error as ZeroMQError {
            throw GatewayError("cannot serve clients on the network: \(error)")
        }
        let channel = try options.supervisorDescriptor.map { descriptor throws(SystemError) in
            try LineChannel(descriptor, loop: loop) { line in Self.handleSupervisorLine(line, gateway) }
        }
        gateway.readSupervisorLines = { channel?.deliverPendingLines() }
        gateway.onPrincipalsChanged = { channel?.send(Self.principalLines(of: $0)) }
        let registration = try loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while let signal = signals.nextSignal() {
                if signal == SIGHUP { readKeys(for: gateway) } else { loop.stop() }
            }
        }
        defer { loop.remove(registration) }
        for listener in listeners { logger.notice("listening", metadata: ["address": "\(listener.addressText)"]) }
        channel?.send([SupervisorCommand.gatewayListening])
        gateway.reportKeys()
        try loop.run()
        gateway.close()
        return 0
    }

    private func openListeners(on loop: EventLoop) throws(GatewayError) -> [ConnectionListener] {
        var listeners: [ConnectionListener] = []
        for address in options.addresses {
            do throws(SystemError) {
                listeners.append(try ConnectionListener(address, loop: loop))
            } catch {
                throw GatewayError(
                    "cannot listen at \(address): \(error); correct `listen`, or stop the program that uses the address"
                )
            }
        }
        return listeners
    }

    /// Drops all rights that the gateway does not need. Precedes libzmq's threads.
    private func enterSandbox() {
        var sandbox = Sandbox()
        sandbox.mayConnect = false
        // The TCP sockets listen already. libzmq gets each connection over a Unix socket of this process.
        sandbox.mayListen = true
        sandbox.allow(.read, path: options.keysFolder)
        let report = sandbox.enter()
        if let obstacle = report.missingPartReason {
            logger.warning("the gateway is not completely restricted", metadata: ["reason": "\(obstacle)"])
        }
    }

    private func readKeys(for gateway: Gateway) {
        do {
            let keys = try options.readKeys()
            gateway.replaceKeys(with: keys)
            logger.notice("the keys were read again", metadata: ["clients": "\(keys.count)"])
        } catch {
            logger.error("cannot read the keys; they stay as they are", metadata: ["error": "\(error)"])
        }
    }

    /// Returns lines that name the principals of all valid keys.
    static func principalLines(of principals: [PrincipalName]) -> [String] {
        let names = principals.map(\.description)
        return stride(from: 0, to: names.count, by: principalsPerLine).map { first in
            ([SupervisorCommand.validKeyPrincipals] + names[first..<min(first + principalsPerLine, names.count)])
                .joined(separator: " ")
        } + [SupervisorCommand.endOfValidKeyPrincipals]
    }

    private static func handleSupervisorLine(_ line: String, _ gateway: Gateway) {
        guard line.hasPrefix(SupervisorCommand.gatewayProof + " ") else { return }
        gateway.brokerProof = GatewayProof(String(line.dropFirst(SupervisorCommand.gatewayProof.utf8.count + 1)))
    }
}

/// Start options of a `GatewayProcess`, which the command `gateway` makes.
public struct GatewayOptions: Sendable {
    /// Addresses to listen at.
    public var addresses: [GatewayAddress]
    /// Path of the broker's socket for clients.
    public var busPath: String
    /// Path of the broker's socket for workers.
    public var workPath: String
    /// Reads the file of keys, at the start and after SIGHUP.
    public var readKeys: @Sendable () throws -> GatewayKeys
    /// Folder of the file of keys. The file can be replaced, so the process may read all files there.
    public var keysFolder: String
    /// Process ID of the parent, with which this process ends; nil for none.
    public var parentPid: Int32?
    /// One end of a `LineChannel` to the supervisor.
    public var supervisorDescriptor: Int32?

    public init(
        addresses: [GatewayAddress], busPath: String, workPath: String, keysFolder: String,
        readKeys: @escaping @Sendable () throws -> GatewayKeys
    ) {
        self.addresses = addresses
        self.keysFolder = keysFolder
        self.busPath = busPath
        self.workPath = workPath
        self.readKeys = readKeys
    }
}

/// Reason why a gateway did not start, with advice for the user.
public struct GatewayError: Error, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}
