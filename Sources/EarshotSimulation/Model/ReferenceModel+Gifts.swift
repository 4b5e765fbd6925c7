internal import EarshotCore
internal import EarshotWire

/// Bodies that are given away: invariant 15.
extension ReferenceModel {
    /// The one request that waits for a flight, if it takes a file and one client alone will hear of it.
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

    /// Whether the one request that a flight ends for gets its file: a file without its content's name.
    func isGiven(_ ending: Ending, to request: RequestRecord) -> Bool {
        guard ending.code == nil, ending.body == nil, let file = ending.completion?.file else { return false }
        return BrokerCore.isOwnName(file) && mayTake(request)
    }

    /// Whether who asks for the same again may not get the same, since it is another's to change.
    func isAnothersGift(_ request: RequestRecord, _ fetch: Fetch, for client: SessionRecord) -> Bool {
        request.ending?.isGiven == true && fetch.options.subscribes && !isDue(request, to: client)
    }

    /// A terminal says whether its file is the receiver's own: of one session alone.
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

    /// A body is a file from fewer bytes on where it will be given away.
    func checkForm(of job: Job, _ flight: FlightRecord) {
        let least = taker(of: flight).map { $0.fetch.options.delivery == .file ? 0 : limits.takenBytes }
        expect(job.inlineBytes == least, 15, "\(job.attempt) brings a file from \(job.inlineBytes ?? -1) bytes on")
    }
}
