internal import EarshotCore
internal import EarshotGateway
internal import EarshotLoop
internal import EarshotWorker
internal import Glibc
internal import LibCrypto

/// The gateway: a child that accepts clients on other machines while the setting `listen` names addresses.
extension Supervisor {
    /// Number of random bytes of a proof.
    private static let proofBytes = 32
    /// Maximum number of lines with the principals of keys.
    private static let maximumKeyLines = GatewayKeys.maximumClients / 100

    /// Whether clients on other machines are served. The bus of one program has no others.
    var servesRemoteClients: Bool { !plan.isPrivate && !settings[.clientListenAddresses].isEmpty }

    func startGateway(_ slot: ChildSlot) throws(SystemError) {
        let addresses = settings[.clientListenAddresses].compactMap { GatewayAddress($0) }
        try startGateway(slot, at: addresses, .keys(plan.keysPath))
    }

    /// Starts a gateway.
    ///
    /// - Parameter addresses: addresses to listen at.
    func startGateway(
        _ slot: ChildSlot, at addresses: [GatewayAddress], _ source: GatewayKeySource
    ) throws(SystemError) {
        let role = slot.role
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in handleGatewayLine(line, role) }
        // The gateway reads the keys by itself: a file can change at any time.
        var options = GatewayOptions(addresses: addresses, busPath: "", workPath: "", keysFolder: "") {
            GatewayKeys(secretKey: "", clients: [])
        }
        options.parentPid = getpid()
        options.supervisorDescriptor = ends.child
        try start(slot, .gateway(options, source), inheriting: [ends.child])
        gatewayChannels[role] = channel
        // The broker must know the process before the gateway accepts connections, which needs the first proof.
        if let child = slot.child { self.brokerChannel?.send(["\(SupervisorCommand.gatewayProcessID) \(child.pid)"]) }
        sendProof()
    }

    /// Handles a line of a gateway, whose process may execute foreign code.
    private func handleGatewayLine(_ line: String, _ role: ChildSlot.Role) {
        if line == SupervisorCommand.gatewayListening { return gatewayListens(role) }
        // The keys of nodes are in the file of the cluster, which changes only at a restart of the bus.
        guard role == .gateway else { return }
        if line == SupervisorCommand.endOfValidKeyPrincipals {
            (keyLines, unfinishedKeyLines) = (unfinishedKeyLines + [line], [])
            sendKeys()
        } else if line.hasPrefix(SupervisorCommand.validKeyPrincipals + " "),
            unfinishedKeyLines.count < Self.maximumKeyLines
        {
            unfinishedKeyLines.append(line)
        }
    }

    /// Sends the valid keys to the broker, or waits until its channel has room.
    func sendKeys() {
        guard let brokerChannel, !keyLines.isEmpty else { return }
        hasUnsentKeys = brokerChannel.hasBacklog
        if !hasUnsentKeys { brokerChannel.send(keyLines) }
    }

    /// Sends the keys and the proof that waited for room in the channel of the broker.
    func updateGateways() {
        if hasUnsentKeys { sendKeys() }
        if hasUnsentProof { sendProof() }
    }

    /// Creates a proof for the next broker, and sends it to the gateways before that broker starts.
    func renewProof() {
        gatewayProof = Hex.encode(Secret.randomBytes(Self.proofBytes))
        doorProof = Hex.encode(Secret.randomBytes(Self.proofBytes))
        sendProof()
    }

    /// Sends the present proof to the gateways, or waits until the broker can read their process IDs.
    func sendProof() {
        guard let gatewayProof else { return }
        hasUnsentProof = brokerChannel?.hasBacklog == true
        guard !hasUnsentProof else { return }
        sendDoorProof()
        for channel in gatewayChannels.values { channel.send(["\(SupervisorCommand.gatewayProof) \(gatewayProof)"]) }
    }

    /// Line that passes the proof to the broker; nil without a gateway.
    var proofLine: String? {
        servesRemoteClients || plan.cluster != nil
            ? gatewayProof.map { "\(SupervisorCommand.gatewayProof) \($0)" } : nil
    }

    /// Starts, stops or restarts the gateway after a change of the settings.
    ///
    /// - Parameter previousAddresses: addresses of the running gateway.
    func reconfigureGateway(previousAddresses: [String]) {
        guard phase == .serving else { return }
        for slot in childSlots where slot.role == .nodeGateway { slot.child?.sendSignal(SIGHUP) }
        let present = childSlots.filter { $0.role == .gateway && !$0.isRetiring }
        if settings[.clientListenAddresses] == previousAddresses {
            for slot in present { slot.child?.sendSignal(SIGHUP) }
            return
        }
        for slot in present {
            slot.isRetiring = true
            if let child = slot.child { child.sendSignal(SIGTERM) } else { childSlots.removeAll { $0 === slot } }
        }
        addGateway()
    }

    /// Starts a gateway if the settings need one and no earlier one runs.
    func addGateway() {
        guard phase == .serving, servesRemoteClients, !childSlots.contains(where: { $0.role == .gateway }) else {
            return
        }
        if let line = proofLine { brokerChannel?.send([line]) }
        let slot = ChildSlot(.gateway)
        childSlots.append(slot)
        restart(slot)
    }
}

/// Children of a bus that is a node of a cluster: the node gateway, which serves bodies to the other nodes, and the
/// puller, which fetches bodies from them.
///
/// SIGHUP makes the node gateway read the cluster's file again. All other changes of that file need a restart.
extension Supervisor {
    func startNodeGateway(_ slot: ChildSlot) throws(SystemError) {
        guard let cluster = plan.cluster else { preconditionFailure("a bus without a cluster has a node gateway") }
        try startGateway(slot, at: [cluster.listener], .cluster(cluster.path))
    }

    func startPuller(_ slot: ChildSlot) throws(SystemError) {
        guard let cluster = plan.cluster else { preconditionFailure("a bus without a cluster has a puller") }
        // A private bus has no cluster, so the puller is a new program, which reads the rest of its options itself.
        var options = PullerOptions(workPath: "")
        options.parentPid = getpid()
        try start(slot, .puller(options, cluster: cluster.path), inheriting: [])
    }
}

/// Part of a cluster's file that the supervisor needs. Its children read the rest themselves.
struct ClusterPlan {
    /// Absolute path of the file.
    let path: String
    /// Address at which the node gateway listens.
    let listener: GatewayAddress

    /// Reads the file.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    init(_ path: String) throws(CommandError) {
        self.path = path
        listener = try ClusterFile(path).listener()
    }
}
