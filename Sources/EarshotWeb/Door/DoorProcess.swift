internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Process of the HTTP door: signals, limits and privileges around a ``Door``.
package enum DoorProcess {
    /// Maximum address space in bytes.
    private static let maximumAddressSpaceBytes = 4 << 30
    /// Interval of reports of the counts, if they changed.
    private static let reportInterval = Duration.seconds(1)

    /// Start options of the process.
    package struct Options {
        package var doorOptions = Door.Options()
        /// Folder of the bodies of the bus.
        package var spoolFolder = ""
        /// Process ID of the parent, with which this process ends.
        package var parentPid: Int32?
        /// One end of a `LineChannel` to the supervisor.
        package var supervisorDescriptor: Int32

        package init(supervisorDescriptor: Int32) {
            self.supervisorDescriptor = supervisorDescriptor
        }
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// - Parameter warn: reports a sandbox that is not complete.
    package static func run(_ options: Options, warn: (String) -> Void) throws {
        SignalSource.ignoreWriteSignals()
        ProcessName.setThreadName("earshot-http")
        try ParentProcess.forbidNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        if let parent = options.parentPid, try !ParentProcess.setParentDeathSignal(parentPid: parent, signal: SIGKILL) {
            return
        }
        try ResourceLimits.limitMemory(of: getpid(), bytes: maximumAddressSpaceBytes)
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let loop = try EventLoop()
        let door = try Door(options.doorOptions, loop: loop)
        // Reads the time zone, whose file the sandbox would hide.
        tzset()
        var sandbox = Sandbox()
        // All its sockets of TCP listen already. It connects to the broker's Unix socket only.
        sandbox.mayConnect = false
        sandbox.mayListen = true
        if !options.doorOptions.readsBodiesByMessage { sandbox.allow(.read, path: options.spoolFolder) }
        if let obstacle = sandbox.enter().missingPartReason {
            warn("the HTTP door is not completely restricted: \(obstacle)")
        }
        let channel = try LineChannel(options.supervisorDescriptor, loop: loop) { line in
            handleSupervisorLine(line, door: door)
        }
        door.readSupervisorLines = { channel.deliverPendingLines() }
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while let signal = signals.nextSignal() { if signal != SIGHUP { loop.stop() } }
        }
        defer { loop.remove(registration) }
        channel.send([([SupervisorCommand.doorListeningAddresses] + door.addresses).joined(separator: " ")])
        reportCounts(of: door, last: Door.Counts(), to: channel, loop: loop)
        try loop.run()
        door.close()
    }

    private static func handleSupervisorLine(_ line: String, door: Door) {
        let words = line.split(separator: " ")
        guard words.count == 2 else { return }
        switch String(words[0]) {
        case SupervisorCommand.doorProof: door.gatewayProof = GatewayProof(String(words[1]))
        case SupervisorCommand.doorWaitMilliseconds:
            door.maximumWaitMilliseconds = Int(words[1]) ?? door.maximumWaitMilliseconds
        default: break
        }
    }

    /// Reports the counts now and in intervals, if they differ from the reported ones.
    private static func reportCounts(of door: Door, last: Door.Counts, to channel: LineChannel, loop: EventLoop) {
        let counts = door.counts
        if counts != last, !channel.hasBacklog {
            let line = "\(SupervisorCommand.doorCounts) \(counts.connections) \(counts.requests) \(counts.refusedCount)"
            channel.send([line])
        }
        loop.setTimer(after: reportInterval) {
            reportCounts(of: door, last: channel.hasBacklog ? last : counts, to: channel, loop: loop)
        }
    }
}
