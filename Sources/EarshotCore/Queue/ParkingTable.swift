internal import EarshotWire

/// Lanes parked at obstacles: by resource, by class, and in the order of their return.
///
/// The lines with lanes at one resource return in a round robin, and the lanes of each line in the order of their
/// parking. So a principal with many lanes at a full origin takes no more than its share of it.
struct ParkingTable {
    typealias Resource = QueueLane.AwaitedResource

    /// All lanes parked at one resource.
    struct ResourceParking {
        let key: Resource
        /// Groups of each class in the order of their turns.
        var groups = PriorityClassTable(repeating: LinkedList<LaneGroup>())
        var isEmpty: Bool { groups.allSatisfy(\.isEmpty) }
    }

    struct GroupKey: Equatable {
        var parking: Handle<ResourceParking>
        var principalQueue: Handle<FairQueue.PrincipalQueue>
        var priority: PriorityClass

        var hash: UInt32 {
            NumberHash.hash(parking.recordNumber, principalQueue.recordNumber, Int32(priority.rawValue))
        }
    }

    /// Lanes of one line in one class.
    struct LaneGroup {
        let key: GroupKey
        var lanes = LinkedList<QueueLane>()
    }

    private(set) var parkings = Slab<ResourceParking>()
    private(set) var groups = Slab<LaneGroup>()
    /// Records of the two slabs by key.
    private var parkingHandles = HandleTable<ResourceParking>()
    private var groupHandles = HandleTable<LaneGroup>()
    private(set) var groupChains = LinkedLists<LaneGroup>()

    var isEmpty: Bool { parkingHandles.isEmpty }

    /// Releases spare capacity of tables.
    mutating func releaseSpareCapacity(retaining least: Int) {
        parkings.releaseSpareCapacity(retaining: least)
        groups.releaseSpareCapacity(retaining: least)
        parkingHandles.releaseSpareCapacity(retaining: least)
        groupHandles.releaseSpareCapacity(retaining: least)
        groupChains.releaseSpareCapacity(beyond: groups.bound, retaining: least)
    }

    /// Adds a lane after the others of its line, and its line after the other lines.
    ///
    /// - Parameters:
    ///   - isNext: whether lane and line precede the others instead, because the lane returned and had no turn.
    ///   - links: table with the links of all lanes.
    mutating func parkLane(
        _ lane: Handle<QueueLane>, of line: Handle<FairQueue.PrincipalQueue>, _ priority: PriorityClass,
        at resource: Resource, isNext: Bool, links: inout LinkedLists<QueueLane>
    ) {
        let parking = parkingHandle(of: resource) ?? insertParking(resource)
        let key = GroupKey(parking: parking, principalQueue: line, priority: priority)
        let group = groupHandle(key) ?? insertGroup(key)
        if isNext {
            links.prepend(lane, to: &groups[group].lanes)
            groupChains.remove(group, from: &parkings[parking].groups[priority])
            groupChains.prepend(group, to: &parkings[parking].groups[priority])
        } else {
            links.append(lane, to: &groups[group].lanes)
        }
    }

    /// Removes a lane, which must be parked at the resource.
    mutating func unparkLane(
        _ lane: Handle<QueueLane>, of line: Handle<FairQueue.PrincipalQueue>, _ priority: PriorityClass,
        at resource: Resource, links: inout LinkedLists<QueueLane>
    ) {
        guard let parking = parkingHandle(of: resource),
            let group = groupHandle(GroupKey(parking: parking, principalQueue: line, priority: priority))
        else { preconditionFailure("lane \(lane) is not parked at \(resource)") }
        removeLane(lane, from: group, links: &links)
    }

    /// Removes and returns the next lane of one class; nil if none is parked there.
    ///
    /// - Parameter parking: record of the resource, which is freed with its last lane.
    mutating func popNextLane(
        at parking: Handle<ResourceParking>, _ priority: PriorityClass, links: inout LinkedLists<QueueLane>
    ) -> Handle<QueueLane>? {
        guard parkings.contains(parking), let group = parkings[parking].groups[priority].first,
            let lane = groups[group].lanes.first
        else { return nil }
        groupChains.rotate(&parkings[parking].groups[priority])
        removeLane(lane, from: group, links: &links)
        return lane
    }

    /// Returns the record of a resource; nil if no lane is parked there.
    func parkingHandle(of resource: Resource) -> Handle<ResourceParking>? {
        isEmpty ? nil : parkingHandles.findRecord(withHash: resource.hash) { parkings[$0].key == resource }
    }

    private mutating func removeLane(
        _ lane: Handle<QueueLane>, from group: Handle<LaneGroup>, links: inout LinkedLists<QueueLane>
    ) {
        links.remove(lane, from: &groups[group].lanes)
        guard groups[group].lanes.isEmpty else { return }
        let key = groups[group].key
        groupChains.remove(group, from: &parkings[key.parking].groups[key.priority])
        groupHandles.remove(group, key.hash)
        groups.destroy(group)
        guard parkings[key.parking].isEmpty else { return }
        parkingHandles.remove(key.parking, parkings[key.parking].key.hash)
        parkings.destroy(key.parking)
    }

    private func groupHandle(_ key: GroupKey) -> Handle<LaneGroup>? {
        // The usual case without a lookup: one principal uses the bus.
        if let only = parkings[key.parking].groups[key.priority].onlyMember {
            return groups[only].key == key ? only : nil
        }
        return groupHandles.findRecord(withHash: key.hash) { groups[$0].key == key }
    }

    private mutating func insertParking(_ key: Resource) -> Handle<ResourceParking> {
        let number = parkings.insert(ResourceParking(key: key))
        parkingHandles.insert(number, key.hash)
        return number
    }

    private mutating func insertGroup(_ key: GroupKey) -> Handle<LaneGroup> {
        let number = groups.insert(LaneGroup(key: key))
        groupHandles.insert(number, key.hash)
        groupChains.append(number, to: &parkings[key.parking].groups[key.priority])
        return number
    }

    /// Returns a sentence for each violated invariant. O(parked lanes).
    ///
    /// - Parameter members: lanes of a group in order.
    func checkInvariants(
        members: (LinkedList<QueueLane>) -> [Handle<QueueLane>],
        isParked: (_ lane: Handle<QueueLane>, GroupKey, Resource) -> Bool
    ) -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        check(
            parkingHandles.count == parkings.count && groupHandles.count == groups.count,
            "12: a parking has no record")
        var listed = 0
        for number in parkings.indices {
            let parking = parkings[number]
            check(!parking.isEmpty, "12: no lane is parked at \(parking.key)")
            check(self.parkingHandle(of: parking.key) == number, "4: \(parking.key) has another number")
            for priority in ClassSchedule.classes {
                for group in groupChains.members(of: parking.groups[priority]) {
                    listed += 1
                    let key = groups[group].key
                    check(
                        key.parking == number && key.priority == priority && groupHandle(key) == group,
                        "4: \(parking.key) has a wrong group")
                    let lanes = members(groups[group].lanes)
                    check(!lanes.isEmpty, "12: line \(key.principalQueue) has no lane at \(parking.key)")
                    check(lanes.allSatisfy { isParked($0, key, parking.key) }, "4: \(parking.key) has a wrong lane")
                }
            }
        }
        check(listed == groups.count, "12: \(listed) of \(groups.count) groups have turns")
        return faults
    }
}
