"""Handlers: one small module for each way to learn a value of a device.

    face                               which handlers there are, and what each needs; pure
    __main__                           the process that asks
    netlink, tcp, sockets, filters,    this machine
    sysfs, kernel_log, command, lldp
    snmp, ipmi, redfish                switches and management controllers
    shared, entity                     one read for several questions; fans, supplies and temperatures of a switch

Not here: which questions are asked, and what an answer means (:mod:`ckpt.diagnosis.manager`).
"""
