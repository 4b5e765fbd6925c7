internal import EarshotCore
internal import EarshotGateway
internal import EarshotLoop
internal import Glibc
internal import LibCrypto

/// The gateway: a child that accepts clients on other machines while the setting `listen` names addresses.
extension Supervisor {
    /// Number of random bytes of a proof.
    private static let proofBytes = 32

    /// Whether clients on other machines are served. The bus of one program has no others.
    var listens: Bool { !plan.isPrivate && !settings[.listen].isEmpty }

    func startGateway(_ post: Post) throws(SystemError) {
        try startGateway(post, at: settings[.listen].compactMap { GatewayAddress($0) }, .keys(plan.keysPath))
    }

    /// Starts a gateway.
    ///
    /// - Parameter addresses: addresses to listen at.
    func startGateway(
        _ post: Post, at addresses: [GatewayAddress], _ source: GatewayKeySource
    ) throws(SystemError) {
        let role = post.role
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in
            if line == SupervisorWord.listening { gatewayListens(role) }
        }
        // The gateway reads the keys by itself: a file can change at any time.
        var options = GatewayOptions(addresses: addresses, busPath: "", workPath: "", keysFolder: "") {
            GatewayKeys(secretKey: "", clients: [])
        }
        options.parentPid = getpid()
        options.supervisorDescriptor = ends.child
        try start(post, .gateway(options, source), inheriting: [ends.child])
        gatewayChannels[role] = channel
        tellProof()
    }

    /// Makes a new proof for the next broker, and tells the gateways before that broker starts.
    func renewProof() {
        proof = Hex.encode(Secret.randomBytes(Self.proofBytes))
        tellProof()
    }

    /// Sends the present proof to the gateways.
    private func tellProof() {
        guard let proof else { return }
        for channel in gatewayChannels.values { channel.send(["\(SupervisorWord.proof) \(proof)"]) }
    }

    /// The line that gives the proof to the broker.
    var proofLine: String? {
        listens || plan.cluster != nil ? proof.map { "\(SupervisorWord.proof) \($0)" } : nil
    }

    /// Starts, stops or restarts the gateway after a change of the settings.
    ///
    /// - Parameter listened: addresses of the running gateway.
    func fitGateway(listened: [String]) {
        guard phase == .serving else { return }
        for post in posts where post.role == .nodeGateway { post.child?.send(SIGHUP) }
        let present = posts.filter { $0.role == .gateway && !$0.isLeaving }
        if settings[.listen] == listened {
            for post in present { post.child?.send(SIGHUP) }
            return
        }
        for post in present {
            post.isLeaving = true
            if let child = post.child { child.send(SIGTERM) } else { posts.removeAll { $0 === post } }
        }
        addGateway()
    }

    /// Starts a gateway if the settings need one and no earlier one runs.
    func addGateway() {
        guard phase == .serving, listens, !posts.contains(where: { $0.role == .gateway }) else { return }
        if let line = proofLine { channel?.send([line]) }
        let post = Post(.gateway)
        posts.append(post)
        restart(post)
    }
}
