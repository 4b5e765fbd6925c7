internal import EarshotCore
internal import EarshotWire

/// Transfer of a file's ownership to a client: invariant 15.
extension ReferenceModel {
    /// Returns the single request that waits for a flight, if it takes ownership of a file and has exactly one
    /// subscriber.
    func taker(of flight: FlightRecord) -> RequestRecord? {
        var waiting: [RequestRecord] = []
        flight.forEachRequest { waiting.append($0) }
        guard waiting.count == 1, let only = waiting.first, mayTake(only) else { return nil }
        return only
    }

    private func mayTake(_ request: RequestRecord) -> Bool {
        let options = request.fetch.options
        return options.takes && options.delivery != .inline && !options.isWarm
            && listeners(of: request.name.handler).count == 1
    }

    /// Returns whether the single request of a flight gets ownership of its file, which is not named by its content.
    func isGiven(_ ending: Ending, to request: RequestRecord) -> Bool {
        guard ending.code == nil, ending.body == nil, let file = ending.completion?.file else { return false }
        return SpoolName.isTaken(file) && mayTake(request)
    }

    /// Returns whether a repeated request must not share an earlier file, because another client owns it and may change
    /// it.
    func isAnothersGift(_ request: RequestRecord, _ fetch: Fetch, for client: SessionRecord) -> Bool {
        request.ending?.isGiven == true && fetch.options.subscribes && !isDue(request, to: client)
    }

    /// Checks that a terminal grants ownership of its file to one session only.
    func checkGift(_ terminal: Terminal, of request: RequestRecord, _ ending: Ending, to client: SessionRecord) {
        let isYours = terminal.response?.isYours ?? false
        expect(
            isYours == ending.isGiven, 15,
            "\(request.name) is told that its file is \(isYours ? "" : "not ")client \(client.id.rawValue)'s own")
        guard let file = ending.completion?.file, isYours || given[file] != nil else { return }
        let owner = given.updateValue(client.id, forKey: file) ?? client.id
        expect(
            owner == client.id, 15,
            "\(file) of \(request.name) goes to client \(client.id.rawValue) and is client \(owner.rawValue)'s own")
    }

    /// Checks the minimum size of a file body, which is lower if the file will be given away.
    func checkForm(of job: Job, _ flight: FlightRecord) {
        let least = taker(of: flight).map { $0.fetch.options.delivery == .file ? 0 : limits.takenBytes }
        expect(job.inlineBytes == least, 15, "\(job.attempt) brings a file from \(job.inlineBytes ?? -1) bytes on")
    }
}
