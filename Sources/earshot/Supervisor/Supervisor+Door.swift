internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// The HTTP door: a child that accepts HTTP clients while the settings `http` and `http-api` name addresses.
extension Supervisor {
    /// Whether the bus has a door. The bus of one program has none.
    var hasDoor: Bool { !plan.isPrivate && !(settings[.httpDoorAddresses] + settings[.httpAPIAddresses]).isEmpty }

    /// Arguments of the door that depend on settings.
    var doorArguments: [String] {
        let lists = [
            ("--at", settings[.httpDoorAddresses].compactMap { DoorAddress.listener($0) }),
            ("--api", settings[.httpAPIAddresses].compactMap { DoorAddress.listener($0) }),
            ("--user", settings[.httpDoorAllowedUsers].compactMap { UserList.parseUserID($0).map { "\($0)" } }),
            ("--origin", settings[.httpAPIAllowedOrigins]), ("--tokens", settings[.httpTokenFiles]),
            ("--rewrite", settings[.httpRewrittenIndexHosts]),
        ]
        return lists.flatMap { name, values in values.flatMap { [name, $0] } }
            + (settings[.allowedUsers].isEmpty ? [] : ["--pull"])
            + (settings[.allowedUsers].isEmpty && settings[.clientListenAddresses].isEmpty ? [] : ["--own-token"])
    }

    func startDoor(_ slot: ChildSlot) throws(SystemError) {
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in handleDoorLine(line) }
        let arguments =
            ["--bus", plan.runtimeFolder.path + "/bus", "--spool", plan.brokerOptions.spoolFolder] + doorArguments
            + ["--wait", "\(settings[.httpWait] ?? 0)", "--supervisor-fd", "\(ends.child)"]
            + ["--parent-pid", "\(getpid())"]
        try start(slot, .door(arguments), inheriting: [ends.child])
        doorChannel = channel
        let addresses = settings[.httpDoorAddresses] + settings[.httpAPIAddresses]
        doorSockets = addresses.compactMap { DoorAddress.listener($0) }.filter { $0.hasPrefix("/") }
        // As with the gateway: the broker must know the process before the process receives its proof.
        if let child = slot.child { self.brokerChannel?.send(["\(SupervisorCommand.gatewayProcessID) \(child.pid)"]) }
        if let doorProof { self.brokerChannel?.send(["\(SupervisorCommand.doorProof) \(doorProof)"]) }
        sendProof()
    }

    /// Handles a line of the door, whose process may execute foreign code: it cannot name a proof.
    private func handleDoorLine(_ line: String) {
        switch HTTPDoorEvent(line: line) {
        case .listeningAddresses(let addresses)? where !addresses.isEmpty:
            doorAddresses = line
            plan.log.write(.notice, "the HTTP door listens at \(addresses.joined(separator: ", "))")
            gatewayListens(.door)
        case .counts?: break
        case .listeningAddresses?, .doorProof?, nil: return
        }
        // Counts are sent again, and addresses to the next broker.
        if let brokerChannel, !brokerChannel.hasBacklog { brokerChannel.send([line]) }
    }

    /// Lines about the door for a broker that starts.
    var doorLines: [String] {
        guard hasDoor else { return [] }
        return (doorProof.map { ["\(SupervisorCommand.doorProof) \($0)"] } ?? []) + (doorAddresses.map { [$0] } ?? [])
    }

    func sendDoorProof() {
        if let doorChannel, let doorProof { doorChannel.send(["\(SupervisorCommand.doorProof) \(doorProof)"]) }
    }

    func sendDoorWait() { doorChannel?.send(["\(SupervisorCommand.doorWaitMilliseconds) \(settings[.httpWait] ?? 0)"]) }

    func doorEnded() {
        doorChannel = nil
        doorAddresses = nil
        // The sandbox of the door removes no file.
        for path in doorSockets {
            var status = stat()
            if unsafe lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK { _ = unsafe unlink(path) }
        }
        doorSockets = []
        brokerChannel?.send([SupervisorCommand.doorListeningAddresses])
    }

    /// Starts, stops or restarts the door after a change of the settings.
    ///
    /// - Parameter arguments: those of the running door.
    func reconfigureDoor(previousArguments arguments: [String]) {
        guard phase == .serving else { return }
        sendDoorWait()
        if arguments != doorArguments {
            for slot in childSlots where slot.role == .door && !slot.isRetiring {
                slot.isRetiring = true
                if let child = slot.child { child.sendSignal(SIGTERM) } else { childSlots.removeAll { $0 === slot } }
            }
        }
        addDoor()
    }

    /// Starts a door if the settings need one and no earlier one runs. Its sandbox opens the spool, which the first
    /// broker creates.
    func addDoor() {
        guard phase == .serving, isReady, hasDoor, !childSlots.contains(where: { $0.role == .door }) else { return }
        let slot = ChildSlot(.door)
        childSlots.append(slot)
        restart(slot)
    }
}
