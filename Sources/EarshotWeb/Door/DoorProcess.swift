internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Process of the HTTP door: signals, limits and privileges around a ``Door``.
package enum DoorProcess {
    /// Maximum address space in bytes.
    private static let memoryBytes = 4 << 30
    /// Interval of reports of the counts, if they changed.
    private static let reportTime = Duration.seconds(1)

    /// Start options of the process.
    package struct Options {
        package var door = Door.Options()
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
        ProcessName.set("earshot-http")
        try ParentProcess.forbidNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        if let parent = options.parentPid, try !ParentProcess.bind(to: parent, signal: SIGKILL) { return }
        try ResourceLimits.limitMemory(of: getpid(), bytes: memoryBytes)
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let loop = try EventLoop()
        let door = try Door(options.door, loop: loop)
        // Reads the time zone, whose file the sandbox would hide.
        tzset()
        var sandbox = Sandbox()
        // All its sockets of TCP listen already. It connects to the broker's Unix socket only.
        sandbox.mayConnect = false
        sandbox.mayListen = true
        if !options.door.isPulling { sandbox.allow(.read, options.spoolFolder) }
        if let obstacle = sandbox.enter().obstacle { warn("the HTTP door is not completely restricted: \(obstacle)") }
        let channel = try LineChannel(options.supervisorDescriptor, loop: loop) { line in take(line, door) }
        door.readSupervisor = { channel.takeLines() }
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while let signal = signals.next() { if signal != SIGHUP { loop.stop() } }
        }
        defer { loop.remove(registration) }
        channel.send([([SupervisorCommand.doorListening] + door.addresses).joined(separator: " ")])
        report(door, Door.Counts(), to: channel, loop)
        try loop.run()
        door.close()
    }

    private static func take(_ line: String, _ door: Door) {
        let words = line.split(separator: " ")
        guard words.count == 2 else { return }
        switch String(words[0]) {
        case SupervisorCommand.doorProof: door.proof = GatewayProof(String(words[1]))
        case SupervisorCommand.doorWait: door.waitMilliseconds = Int(words[1]) ?? door.waitMilliseconds
        default: break
        }
    }

    /// Reports the counts now and in intervals, if they differ from the reported ones.
    private static func report(_ door: Door, _ last: Door.Counts, to channel: LineChannel, _ loop: EventLoop) {
        let counts = door.counts
        if counts != last, !channel.hasBacklog {
            channel.send(["\(SupervisorCommand.doorCounts) \(counts.connections) \(counts.requests) \(counts.refused)"])
        }
        loop.setTimer(after: reportTime) { report(door, channel.hasBacklog ? last : counts, to: channel, loop) }
    }
}
