internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// The HTTP door: a child that accepts HTTP clients while the settings `http` and `http-api` name addresses.
extension Supervisor {
    /// Whether the bus has a door. The bus of one program has none.
    var hasDoor: Bool { !plan.isPrivate && !(settings[.http] + settings[.httpAPI]).isEmpty }

    /// Arguments of the door that settings decide.
    var doorArguments: [String] {
        let lists = [
            ("--at", settings[.http].compactMap { DoorAddress.listener($0) }),
            ("--api", settings[.httpAPI].compactMap { DoorAddress.listener($0) }),
            ("--user", settings[.httpUsers].compactMap { UserList.user($0).map { "\($0)" } }),
            ("--origin", settings[.httpOrigins]), ("--tokens", settings[.httpTokens]),
            ("--rewrite", settings[.httpRewrite]),
        ]
        return lists.flatMap { name, values in values.flatMap { [name, $0] } }
            + (settings[.users].isEmpty ? [] : ["--pull"])
            + (settings[.users].isEmpty && settings[.listen].isEmpty ? [] : ["--own-token"])
    }

    func startDoor(_ slot: ChildSlot) throws(SystemError) {
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in takeDoorLine(line) }
        let arguments =
            ["--bus", plan.folder.path + "/bus", "--spool", plan.broker.spoolFolder] + doorArguments
            + ["--wait", "\(settings[.httpWait] ?? 0)", "--supervisor-fd", "\(ends.child)"]
            + ["--parent-pid", "\(getpid())"]
        try start(slot, .door(arguments), inheriting: [ends.child])
        doorChannel = channel
        doorSockets = (settings[.http] + settings[.httpAPI]).compactMap { DoorAddress.listener($0) }.filter {
            $0.hasPrefix("/")
        }
        // As with the gateway: the broker must know the process before that has its proof.
        if let child = slot.child { self.channel?.send(["\(SupervisorCommand.gateway) \(child.pid)"]) }
        if let doorProof { self.channel?.send(["\(SupervisorCommand.doorProof) \(doorProof)"]) }
        sendProof()
    }

    /// Handles a line of the door, whose process may execute foreign code: it cannot name a proof.
    private func takeDoorLine(_ line: String) {
        switch DoorEvent(line: line) {
        case .listening(let addresses)? where !addresses.isEmpty:
            doorAddresses = line
            plan.log.write(.notice, "the HTTP door listens at \(addresses.joined(separator: ", "))")
            gatewayListens(.door)
        case .counts?: break
        case .listening?, .proof?, nil: return
        }
        // Counts are sent again, and addresses to the next broker.
        if let channel, !channel.hasBacklog { channel.send([line]) }
    }

    /// Lines about the door for a broker that starts.
    var doorLines: [String] {
        guard hasDoor else { return [] }
        return (doorProof.map { ["\(SupervisorCommand.doorProof) \($0)"] } ?? []) + (doorAddresses.map { [$0] } ?? [])
    }

    func sendDoorProof() {
        if let doorChannel, let doorProof { doorChannel.send(["\(SupervisorCommand.doorProof) \(doorProof)"]) }
    }

    func sendDoorWait() { doorChannel?.send(["\(SupervisorCommand.doorWait) \(settings[.httpWait] ?? 0)"]) }

    func doorEnded() {
        doorChannel = nil
        doorAddresses = nil
        // The sandbox of the door removes no file.
        for path in doorSockets {
            var status = stat()
            if unsafe lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK { _ = unsafe unlink(path) }
        }
        doorSockets = []
        channel?.send([SupervisorCommand.doorListening])
    }

    /// Starts, stops or restarts the door after a change of the settings.
    ///
    /// - Parameter arguments: those of the running door.
    func fitDoor(was arguments: [String]) {
        guard phase == .serving else { return }
        sendDoorWait()
        if arguments != doorArguments {
            for slot in childSlots where slot.role == .door && !slot.isLeaving {
                slot.isLeaving = true
                if let child = slot.child { child.send(SIGTERM) } else { childSlots.removeAll { $0 === slot } }
            }
        }
        addDoor()
    }

    /// Starts a door if the settings need one and no earlier one runs. Its sandbox opens the spool, which the first broker creates.
    func addDoor() {
        guard phase == .serving, isReady, hasDoor, !childSlots.contains(where: { $0.role == .door }) else { return }
        let slot = ChildSlot(.door)
        childSlots.append(slot)
        restart(slot)
    }
}
